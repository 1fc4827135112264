// Which connection speaks for which member: who may take over, what comes again, and when a member is gone.
#include "csrc/controller/lines.h"

#include <set>

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

using wire::Type;

struct LineRoom {
  std::set<uint64_t> ended;  // processes
  Lines lines{"space"};
  Lines::Parcels out;
  transport::Link::Dropped dropped;
  int64_t now = 1000;
  uint64_t beats = 0;

  Lines::Verdict Take(const std::string& route, std::string frame, const std::string& sender = "worker") {
    out.clear();
    const wire::Head head = *wire::DecodeHead(frame);
    return lines.Take(route, sender, head, frame.size(), out, &dropped);
  }
  Connection Join(const std::string& route, uint64_t line, uint64_t pid = 7, const std::string& space = "space") {
    const Lines::Verdict verdict = Take(route, Hello(line, pid, space));
    EXPECT_OK(verdict.refusal);
    EXPECT(verdict.opened && verdict.from);
    return verdict.from.value_or("");
  }
  static std::string Hello(uint64_t line, uint64_t pid = 7, const std::string& space = "space") {
    wire::Hello hello;
    hello.role = wire::Role::kWorker;
    hello.pid = pid;
    hello.line = line;
    hello.secret = SecretOf(line);
    hello.process_space = space;
    return wire::Encode(hello);
  }
  static std::string SecretOf(uint64_t line) { return std::string(16, static_cast<char>('a' + line)); }
  std::string Beat(uint64_t line, uint64_t received, std::string secret = "", uint64_t count = 0) {
    wire::Heartbeat beat;
    beat.count = count != 0 ? count : ++beats;
    beat.line = line;
    beat.secret = secret.empty() ? SecretOf(line) : std::move(secret);
    beat.received = received;
    return wire::Encode(beat);
  }
  static std::string Message(uint64_t number) {
    std::string frame = wire::Encode(wire::Spill{});
    wire::PatchNumber(frame, number);
    return frame;
  }
  void Say(const Connection& member, const std::string& what) {
    out.clear();
    transport::Frames frames;
    frames.emplace_back(wire::Encode(wire::Goodbye{what}));
    EXPECT_OK(lines.Send(member, std::move(frames), out));
  }
  // "route:what" of each parcel; heartbeats as what they say.
  std::vector<std::string> Sent() const {
    std::vector<std::string> sent;
    for (const Lines::Parcel& parcel : out) {
      const wire::Head head = *wire::DecodeHead(parcel.frames[0].bytes());
      if (head.header.type == Type::kHeartbeat) {
        const wire::Heartbeat beat = *wire::Decode<wire::Heartbeat>(head.body);
        sent.push_back(parcel.route + ":" + std::to_string(beat.received) + (beat.again ? "!" : ""));
      } else {
        sent.push_back(parcel.route + ":" + wire::Decode<wire::Goodbye>(head.body)->reason);
      }
    }
    return sent;
  }
  std::vector<std::pair<Connection, std::string>> Tick(int64_t after_ms) {
    std::vector<std::pair<Connection, std::string>> gone;
    for (int64_t waited = 0; waited < after_ms && gone.empty(); waited += 50) {
      gone = lines.TakeGone(now += 50, [this](uint64_t pid) { return ended.contains(pid); });
    }
    return gone;
  }
};

using Texts = std::vector<std::string>;

// A member says HELLO until it is answered, twice on its first connection. One that was refused is not heard again on
// that, or it would join without a line, and nobody would learn that it has gone.
TEST(AHelloThatIsSaidTwiceOfAMemberThatWasRefusedIsNobodys) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  room.lines.Drop(member);
  const Lines::Verdict again = room.Take("r1", LineRoom::Hello(1));
  EXPECT(!again.from.has_value());
  EXPECT(!again.opened);
  EXPECT_OK(again.refusal);
  EXPECT(room.Take("r1", LineRoom::Message(1)).from == Connection("r1"));  // which is told that it is none
  EXPECT(room.lines.OnClosed("r1", room.now));
  EXPECT(room.Join("r2", 2) != member);
}

TEST(AnotherConnectionGoesOnWhereTheFirstOneWas) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  EXPECT(room.Take("r1", LineRoom::Message(1)).from == member);
  room.Say(member, "a");
  EXPECT_EQ(room.Sent(), Texts{"r1:a"});
  room.Say(member, "b");
  EXPECT(room.lines.OnClosed("r1", room.now));
  EXPECT(!room.lines.Speaks("r1"));
  room.Say(member, "c");
  EXPECT(room.out.empty());  // nobody is there
  // What its queue still held has no effect before it is known whose it is.
  EXPECT(!room.Take("r2", LineRoom::Message(2)).from);
  EXPECT(room.Take("r2", room.Beat(1, 1)).from == member);
  EXPECT_EQ(room.Sent(), (Texts{"r2:1!", "r2:b", "r2:c"}));
  EXPECT(!room.Take("r2", LineRoom::Message(3)).from);  // on its way before it heard that it is to send again
  EXPECT(room.out.empty());
  EXPECT(room.Take("r2", LineRoom::Message(2)).from == member);
  EXPECT(room.Take("r2", LineRoom::Message(3)).from == member);
  EXPECT(!room.Take("r2", LineRoom::Message(3)).from);  // twice
  EXPECT(room.Tick(60'000).empty());
}

TEST(AStaleConnectionIsNotHeard) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  EXPECT(room.Take("r2", room.Beat(1, 0)).from == member);  // half open: the first one is still there
  EXPECT(room.lines.Speaks("r2") && !room.lines.Speaks("r1"));
  EXPECT(!room.Take("r1", LineRoom::Message(1)).from);
  EXPECT(!room.Take("r1", room.Beat(1, 0)).from);  // nor does it take the line back
  EXPECT(room.lines.Speaks("r2"));
  EXPECT(room.lines.OnClosed("r1", room.now));
  EXPECT(room.Tick(10'000).empty());
  room.Say(member, "a");
  EXPECT_EQ(room.Sent(), Texts{"r2:a"});
}

TEST(AConnectionThatIsReadLateTakesNothingBack) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  EXPECT(room.lines.OnClosed("r1", room.now));
  const std::string late = room.Beat(1, 0);
  EXPECT(room.Take("r3", room.Beat(1, 0)).from == member);
  EXPECT(!room.Take("r2", late).from);  // it came and went before
  EXPECT(!room.Take("r4", LineRoom::Hello(1)).from);
  EXPECT(room.lines.Speaks("r3"));
  EXPECT(!room.lines.OnClosed("r2", room.now));
  EXPECT(room.Take("r3", LineRoom::Message(1)).from == member);
}

TEST(NobodyElseTakesALineOver) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  (void)room.Join("other", 2);
  room.Say(member, "secret");
  const auto denied = [](const Lines::Verdict& verdict) {
    return verdict.refusal.code() == Code::kPermissionDenied && !verdict.from;
  };
  EXPECT(denied(room.Take("r2", room.Beat(1, 0, std::string(16, 'x')))));
  EXPECT(denied(room.Take("r2", room.Beat(1, 0, "a"))));
  EXPECT(denied(room.Take("r2", room.Beat(1, 0), "client")));  // the secret, with another role's key
  EXPECT(denied(room.Take("r2", LineRoom::Hello(1), "client")));
  EXPECT(room.out.empty());
  EXPECT(room.Take("r2", room.Beat(9, 0)).refusal.code() == Code::kNotFound);
  EXPECT(room.Take("r2", room.Beat(1, 2)).refusal.code() == Code::kInvalidArgument);  // it was sent but one
  EXPECT(room.lines.Speaks("r1"));
  // Another's line named on a connection that has one of its own changes nothing.
  EXPECT(room.Take("other", room.Beat(1, 0)).from == Connection("line/2"));
  EXPECT(room.lines.Speaks("r1"));
}

// A network that carries in one direction only: the member makes connection after connection, and none is heard of.
TEST(WhoHearsNothingAndClosesItsConnectionIsSilentAndNotGone) {
  for (const bool says_so : {true, false}) {
    LineRoom room;
    const Connection member = room.Join("r1", 1);
    EXPECT(room.Tick(5'000).empty());
    wire::Heartbeat beat;
    beat.count = 100;
    beat.hears_nothing = says_so ? 1 : 0;
    EXPECT(room.Take("r1", wire::Encode(beat)).from == member);
    EXPECT(room.lines.OnClosed("r1", room.now));
    EXPECT_EQ(room.Tick(30'000).size(), says_so ? 0 : 1);
    if (!says_so) continue;
    beat.count = 101;
    beat.line = 1;
    beat.secret = LineRoom::SecretOf(1);
    EXPECT(room.Take("r2", wire::Encode(beat)).from == member);  // made with its first word of the new connection
    EXPECT(room.lines.OnClosed("r2", room.now));                 // and that one was heard
    EXPECT_EQ(room.Tick(10'000).size(), 1);
  }
}

TEST(AHelloWhoseAnswerWasLostIsSaidAgain) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  EXPECT(!room.Take("r1", LineRoom::Hello(1)).from);  // twice on one connection
  EXPECT(room.out.empty());
  room.Say(member, "welcome");
  EXPECT(room.lines.OnClosed("r1", room.now));
  const Lines::Verdict verdict = room.Take("r2", LineRoom::Hello(1));
  EXPECT(!verdict.from && verdict.refusal.ok() && !verdict.opened);
  EXPECT_EQ(room.Sent(), (Texts{"r2:0!", "r2:welcome"}));
}

TEST(AHelloNeedsALineAndASecret) {
  LineRoom room;
  wire::Hello hello;
  hello.role = wire::Role::kClient;
  EXPECT(room.Take("r", wire::Encode(hello)).refusal.code() == Code::kInvalidArgument);
  hello.line = 1;
  hello.secret = "short";
  EXPECT(room.Take("r", wire::Encode(hello)).refusal.code() == Code::kInvalidArgument);
  EXPECT(room.Take("r", LineRoom::Message(1)).from == std::nullopt);
  EXPECT(room.Take("r", wire::Encode(wire::Spill{})).from == Connection("r"));  // ClusterState says what is missing
}

TEST(AMemberIsGoneWhenItsProcessIsOrWhenItDoesNotComeBack) {
  LineRoom room;
  const Connection here = room.Join("r1", 1, 7), elsewhere = room.Join("r2", 2, 7, "another machine");
  room.ended.insert(7);
  EXPECT(room.Tick(10'000).empty());  // their connections are there
  EXPECT(room.lines.OnClosed("r1", room.now));
  EXPECT(room.lines.OnClosed("r2", room.now));
  auto gone = room.Tick(50);
  EXPECT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone.at(0).first, here);
  room.lines.Drop(here);
  const int64_t closed = room.now;
  gone = room.Tick(10'000);
  EXPECT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone.at(0).first, elsewhere);
  EXPECT(room.now - closed > 3900 && room.now - closed < 5000);
}

// The controller was killed, and with it all connections; a member that is stopped comes back when it goes on.
TEST(WhomItsControllerLeftIsSilentAndNotGone) {
  LineRoom room;
  const Connection stopped = room.Join("r1", 1), ended = room.Join("r2", 2, 8);
  EXPECT(room.Tick(5'000).empty());
  room.lines.CloseAll(room.now);
  EXPECT(room.Tick(10'000).empty());
  room.ended.insert(8);
  auto gone = room.Tick(50);
  EXPECT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone.at(0).first, ended);
  room.lines.Drop(ended);
  EXPECT(room.Tick(20'000).empty());
  EXPECT(room.Take("r3", room.Beat(1, 0)).from == stopped);
  EXPECT(room.lines.OnClosed("r3", room.now));  // this time it was the member, or the network
  EXPECT_EQ(room.Tick(10'000).size(), 1u);
}

TEST(WhoIsAMemberNoMoreIsToldWhenItSpeaks) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  room.lines.Drop(member);
  EXPECT(room.Take("r1", LineRoom::Message(1)).from == Connection("r1"));  // whom ClusterState does not know
  room.Say(member, "a");
  EXPECT(room.out.empty());
  EXPECT(room.Take("r2", room.Beat(1, 0)).refusal.code() == Code::kNotFound);
  EXPECT(room.lines.OnClosed("r1", room.now));
  EXPECT(!room.lines.OnClosed("r1", room.now));
}

TEST(AMessageOfAMemberHasANumberAndNoneIsLeftOut) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  EXPECT(room.Take("r1", wire::Encode(wire::Spill{})).refusal.code() == Code::kInvalidArgument);
  EXPECT(!room.Take("r1", LineRoom::Message(2)).from);
  EXPECT_EQ(room.Sent(), Texts{"r1:0!"});
  EXPECT(!room.Take("r1", LineRoom::Message(3)).from);
  EXPECT(room.out.empty());  // it was asked once
  EXPECT(room.Take("r1", LineRoom::Message(1)).from == member);
}

TEST(WhatIsNotTakenHasALimit) {
  LineRoom room;
  const Connection member = room.Join("r1", 1);
  EXPECT(room.lines.OnClosed("r1", room.now));
  Lines::Parcels out;
  Status status;
  size_t sent = 0;
  for (; status.ok() && sent < 100'000; ++sent) {
    transport::Frames frames;
    frames.emplace_back(wire::Encode(wire::Goodbye{}));
    status = room.lines.Send(member, std::move(frames), out);
  }
  EXPECT(status.code() == Code::kResourceExhausted);
  EXPECT_EQ(sent, Lines::kWorkerLimits.messages + 1);
  EXPECT(out.empty());
}

}  // namespace
}  // namespace pathways::controller
