// Links: what is lost comes again, what comes twice counts once, and a peer that starts again is another.
#include "csrc/transport/link.h"

#include <random>

#include "csrc/testing/test.h"

namespace pathways::transport {
namespace {

Link::Kept Text(const std::string& text, uint64_t ticket = 0) {
  Frames frames;
  frames.emplace_back(text);
  return {ticket, 0, std::move(frames)};
}

// Two ends, and a wire between them that can be cut. What is on the wire is lost then.
struct Wire {
  struct Message {
    uint64_t sequence = 0;  // 0: a hello
    std::string text;
    Link::Statement hello;
  };
  struct End {
    explicit End(uint64_t number) : link(number) {}
    Link link;
    std::deque<Message> sent;
    std::string took;
  };
  End ends[2]{End(7), End(8)};

  void Send(int from, const std::string& text) {
    End& end = ends[from];
    end.sent.push_back({end.link.next_sequence(), text, {}});
    end.link.Keep(Text(text));
  }
  void Hello(int from, bool anew) { ends[from].sent.push_back({0, "", ends[from].link.Tell(anew)}); }
  void SendAgain(int from) {
    uint64_t sequence = ends[from].link.first_kept();
    for (Link::Kept& kept : ends[from].link.kept()) {
      ends[from].sent.push_back({sequence++, std::string(kept.frames[0].bytes()), {}});
    }
  }
  // Delivers one message to end `to`.
  void Deliver(int to) {
    End& end = ends[to];
    Message message = std::move(ends[1 - to].sent.front());
    ends[1 - to].sent.pop_front();
    if (message.sequence > 0) {
      const auto verdict = end.link.Take(message.sequence);
      if (verdict == Link::Verdict::kNew) end.took += message.text;
      return;
    }
    Link::Dropped dropped;
    const Link::Heard heard = end.link.Hear(message.hello, 99, &dropped);
    EXPECT(!heard.forgotten);
    if (heard.unknown) Hello(to, false);
    if (heard.lost || heard.send_again) {
      if (heard.send_again) SendAgain(to);
      if (heard.lost) Hello(to, true);  // stands for PEER_SEEN: asks for all of it again
    }
  }
  void Cut() {
    ends[0].sent.clear();
    ends[1].sent.clear();
    Hello(0, true);
  }
  void Run() {
    while (!ends[0].sent.empty() || !ends[1].sent.empty()) {
      for (int to : {0, 1}) {
        if (!ends[1 - to].sent.empty()) Deliver(to);
      }
    }
  }
};

TEST(EachMessageArrivesOnceInOrderHoweverOftenTheWireIsCut) {
  std::minstd_rand random(5);
  for (int round = 0; round < 200; ++round) {
    Wire wire;
    wire.Hello(0, false);
    std::string sent[2];
    for (int step = 0; step < 200; ++step) {
      const int end = random() % 2;
      switch (random() % 8) {
        case 0:
          if (random() % 4 == 0) wire.Cut();
          break;
        case 1:
        case 2:
        case 3:
          if (!wire.ends[1 - end].sent.empty()) wire.Deliver(end);
          break;
        default:
          if (end == 1 && !wire.ends[1].link.knows_peer()) break;  // a listener answers
          sent[end] += static_cast<char>('a' + step % 26);
          wire.Send(end, sent[end].substr(sent[end].size() - 1));
      }
    }
    wire.Cut();
    wire.Run();
    EXPECT_EQ(wire.ends[1].took, sent[0]);
    EXPECT_EQ(wire.ends[0].took, sent[1]);
    wire.Hello(0, false);
    wire.Hello(1, false);
    wire.Run();
    EXPECT(wire.ends[0].link.kept().empty() && wire.ends[1].link.kept().empty());
  }
}

TEST(AStrangersMessagesAreNotTaken) {
  Link link(1);
  EXPECT(link.Take(1) == Link::Verdict::kStranger);
  Link::Dropped dropped;
  EXPECT(link.Hear({5, 0, 0, 0, false}, 9, &dropped).unknown);
  EXPECT(link.Take(2) == Link::Verdict::kGap);
  EXPECT(link.AskForGap());
  EXPECT(!link.AskForGap());  // once
  EXPECT(link.Take(1) == Link::Verdict::kNew);
  EXPECT(link.Take(1) == Link::Verdict::kRepeat);
  EXPECT_EQ(link.untold(), 1);
}

TEST(AnAnswerToAPieceMeansThatAllBeforeItArrived) {
  Link link(1);
  for (uint64_t ticket = 11; ticket < 15; ++ticket) link.Keep(Text("piece", ticket));
  Link::Dropped dropped;
  link.SeenTicket(12, &dropped);
  EXPECT_EQ(dropped.size(), 2u);
  EXPECT_EQ(link.first_kept(), 3);
  link.SeenTicket(11, &dropped);  // known
  link.Seen(100, &dropped);
  EXPECT(link.kept().empty());
  EXPECT_EQ(link.next_sequence(), 5);
}

TEST(APeerThatStartsAgainGetsNothingOfItsPredecessor) {
  Link link(1);
  Link::Dropped dropped;
  (void)link.Hear({5, 0, 0, 0, false}, 9, &dropped);
  link.Keep(Text("a"));
  link.Keep(Text("b"));
  (void)link.Hear({5, 1, 1, 3, false}, 9, &dropped);
  for (uint64_t sequence : {1, 2, 3}) EXPECT(link.Take(sequence) == Link::Verdict::kNew);
  const Link::Heard heard = link.Hear({6, 0, 0, 2, false}, 9, &dropped);
  EXPECT(heard.forgotten && heard.unknown && heard.lost);
  EXPECT_EQ(link.number(), 9);
  EXPECT(link.kept().empty());
  EXPECT_EQ(link.next_sequence(), 1);
  EXPECT(link.Take(1) == Link::Verdict::kNew);  // its own numbers
  // What it said before it heard of the new link harms nothing.
  link.Keep(Text("c"));
  EXPECT(!link.Hear({6, 1, 2, 2, false}, 10, &dropped).forgotten);
  EXPECT_EQ(link.kept().size(), 1u);
}

}  // namespace
}  // namespace pathways::transport
