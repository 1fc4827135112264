// Lines: what two ends say to each other arrives once, in order, whatever becomes of the connections; and how long an
// end is believed to be there.
#include "csrc/transport/line.h"

#include <random>

#include "csrc/testing/test.h"
#include "csrc/wire/bodies.h"

namespace pathways::transport {
namespace {

constexpr LineLimits kRoomy{1000, 1 << 20};

Frames Word(char letter) {
  Frames frames;
  frames.emplace_back(wire::Encode(wire::Goodbye{std::string(1, letter)}));
  return frames;
}

// A member (end 0) and the controller (end 1), without sockets. The member's connection can be cut at any time; what
// its queue still holds then goes out on the next one, as libzmq has it.
struct Talk {
  struct Said {
    uint32_t number = 0;  // 0: a heartbeat
    char letter = 0;
    uint64_t received = 0;
    bool again = false;
  };
  Line member{7, kRoomy}, controller{7, kRoomy};
  std::deque<Said> up, down;
  bool speaks = false;  // the member's connection has shown whose it is
  std::string took[2];

  static Said SaidBy(const Frames& frames) {
    const wire::Head head = *wire::DecodeHead(frames[0].bytes());
    return {head.header.number, wire::Decode<wire::Goodbye>(head.body)->reason[0], 0, false};
  }
  void Say(int end, char letter) {
    Line& line = end == 0 ? member : controller;
    const Said said = SaidBy(line.Out(Word(letter)));
    if (end == 0) up.push_back(said);
    if (end == 1 && speaks) down.push_back(said);
  }
  void Beat() { up.push_back({0, 0, member.Tell(), false}); }
  void Cut(bool loses_queue) {
    if (loses_queue) up.clear();
    down.clear();
    speaks = false;
  }
  void DeliverUp() {
    if (up.empty()) return;
    const Said said = up.front();
    up.pop_front();
    Link::Dropped dropped;
    if (said.number == 0) {
      EXPECT_OK(controller.Seen(said.received, &dropped));
      if (speaks) return;
      speaks = true;
      (void)controller.AskForGap();
      down.push_back({0, 0, controller.Tell(), true});
      controller.Again([&](Frames frames) { down.push_back(SaidBy(frames)); });
      return;
    }
    if (!speaks) return;  // of an earlier connection
    const Link::Verdict verdict = controller.In(said.number, 1);
    if (verdict == Link::Verdict::kNew) took[1] += said.letter;
    if (verdict == Link::Verdict::kGap && controller.AskForGap()) down.push_back({0, 0, controller.Tell(), true});
  }
  void DeliverDown() {
    if (down.empty()) return;
    const Said said = down.front();
    down.pop_front();
    Link::Dropped dropped;
    if (said.number == 0) {
      EXPECT_OK(member.Seen(said.received, &dropped));
      if (said.again) member.Again([&](Frames frames) { up.push_back(SaidBy(frames)); });
      return;
    }
    const Link::Verdict verdict = member.In(said.number, 1);
    EXPECT(verdict != Link::Verdict::kGap);
    if (verdict == Link::Verdict::kNew) took[0] += said.letter;
  }
};

TEST(WhatIsSaidOnALineArrivesOnceInOrderOverAnyNumberOfConnections) {
  std::minstd_rand random(11);
  for (int round = 0; round < 300; ++round) {
    Talk talk;
    std::string sent[2];
    talk.Beat();
    for (int step = 0; step < 300; ++step) {
      const char letter = static_cast<char>('a' + step % 26);
      switch (random() % 10) {
        case 0:
          if (random() % 3 == 0) talk.Cut(random() % 2 == 0);
          break;
        case 1:
          talk.Beat();
          break;
        case 2:
        case 3:
        case 4:
          talk.DeliverUp();
          break;
        case 5:
        case 6:
        case 7:
          talk.DeliverDown();
          break;
        default: {
          const int end = static_cast<int>(random() % 2);
          sent[end] += letter;
          talk.Say(end, letter);
        }
      }
    }
    talk.Cut(true);
    talk.Beat();
    while (!talk.up.empty() || !talk.down.empty()) {
      talk.DeliverUp();
      talk.DeliverDown();
    }
    EXPECT_EQ(talk.took[1], sent[0]);
    EXPECT_EQ(talk.took[0], sent[1]);
  }
}

TEST(NumbersOfALineGoOnBeyondTheirBits) {
  for (const uint64_t near :
       {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 31) - 2, uint64_t{1} << 31, uint64_t{1} << 40}) {
    for (const int64_t ahead : {int64_t{0}, int64_t{1}, int64_t{1} << 29}) {
      const uint64_t number = near + static_cast<uint64_t>(ahead);
      EXPECT_EQ(wire::NumberOf(wire::LineNumber(number), near), number);
      EXPECT_EQ(wire::NumberOf(wire::LineNumber(near), number), near);
      EXPECT(wire::LineNumber(number) != 0);
    }
  }
}

TEST(ALineKeepsSoMuchAndNoMore) {
  Line line(1, {4, 1 << 20});
  for (char letter : {'a', 'b', 'c', 'd'}) (void)line.Out(Word(letter));
  EXPECT_OK(line.CheckRoom());
  (void)line.Out(Word('e'));
  EXPECT(line.CheckRoom().code() == Code::kResourceExhausted);
  Link::Dropped dropped;
  EXPECT_OK(line.Seen(2, &dropped));
  EXPECT_OK(line.CheckRoom());
  EXPECT(line.Seen(6, &dropped).code() == Code::kInvalidArgument);  // as many were never sent
  Frames large;
  large.emplace_back(wire::Encode(wire::Goodbye{}));
  large.emplace_back(std::string((1 << 20) + 1, 'x'));
  (void)line.Out(std::move(large));
  EXPECT_OK(line.CheckRoom());  // one may have any size
  (void)line.Out(Word('f'));
  EXPECT(line.CheckRoom().message().find("1 MiB") != std::string_view::npos);
  EXPECT_OK(line.Seen(7, &dropped));
  EXPECT_OK(line.CheckRoom());
}

TEST(MuchThatWasTakenIsToldAtOnce) {
  Line line(1, kRoomy);
  for (uint64_t n = 1; n < 256; ++n) EXPECT(line.In(wire::LineNumber(n), 10) == Link::Verdict::kNew);
  EXPECT(!line.OwesWord());
  (void)line.In(wire::LineNumber(256), 10);
  EXPECT(line.OwesWord());
  EXPECT_EQ(line.Tell(), 256);
  EXPECT(!line.OwesWord());
  (void)line.In(wire::LineNumber(257), 1 << 20);
  EXPECT(line.OwesWord());
}

TEST(AClosedConnectionIsADeathOnlyWithoutAProcessOrAReturn) {
  const auto alive = [] { return false; };
  const auto ended = [] { return true; };
  Lifeline lifeline;
  int64_t now = 100'000;
  lifeline.Heard(now);
  EXPECT_EQ(lifeline.Tick(now, 60'000, ended), "");  // while it is there, nobody is asked
  lifeline.Closed(now, true);
  EXPECT(lifeline.Tick(now, 60'000, ended).find("its connection closed") == 0);
  for (int64_t waited = 0; waited <= Lifeline::kGraceMs; waited += 100) {
    EXPECT_EQ(lifeline.Tick(now + waited, 60'000, alive), "");
  }
  EXPECT(lifeline.Tick(now + Lifeline::kGraceMs + 1, 60'000, alive).find("within 4 s") != std::string::npos);
  lifeline.Opened();
  EXPECT_EQ(lifeline.Tick(now + Lifeline::kGraceMs + 100, 60'000, alive), "");
}

TEST(AProcessThatEndsLongAfterItsConnectionIsNamedWithTheConnection) {
  const auto ended = [] { return true; };
  for (const int64_t later : {Lifeline::kGraceMs * 3 / 4, Lifeline::kGraceMs + 1}) {  // it gave up before this end did
    Lifeline lifeline;
    lifeline.Heard(1000);
    lifeline.Closed(1000, false);
    for (int64_t now = 1000; now < 1000 + later; now += 100) {
      EXPECT_EQ(lifeline.Tick(now, 60'000, [] { return false; }), "");
    }
    const std::string reason = lifeline.Tick(1000 + later, 60'000, ended);
    EXPECT(reason.find("was not made again within") != std::string::npos);
    EXPECT(reason.find("and then the process ended") != std::string::npos);
  }
}

TEST(AttemptsThatFailDoNotPutADeathOff) {
  Lifeline lifeline;
  const auto alive = [] { return false; };
  lifeline.Heard(1000);
  for (int64_t now = 1000; now <= 2000; now += 100) lifeline.Closed(now, true);  // a proxy takes each, and ends it
  EXPECT_EQ(lifeline.Tick(1000 + Lifeline::kGraceMs, 60'000, alive), "");
  EXPECT(lifeline.Tick(1001 + Lifeline::kGraceMs, 60'000, alive).find("within 4 s") != std::string::npos);
}

TEST(SilenceIsBorneForTheLease) {
  const auto alive = [] { return false; };
  Lifeline lifeline;
  lifeline.Heard(0);
  int64_t now = 0;
  for (; now <= 10'000; now += 100) EXPECT_EQ(lifeline.Tick(now, 10'000, alive), "");
  EXPECT(lifeline.Tick(now, 10'000, alive).find("nothing was heard") == 0);
  // This end's own giving a silent connection up is no more than silence.
  lifeline.Heard(now);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(lifeline.Tick(now += 100, 60'000, alive), "");
  lifeline.Closed(now, true);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(lifeline.Tick(now += 100, 60'000, alive), "");
  lifeline.Closed(now, false);  // of an end that does no such thing
  for (int i = 0; i < 40; ++i) EXPECT_EQ(lifeline.Tick(now += 100, 60'000, alive), "");
  EXPECT_NE(lifeline.Tick(now += 100, 60'000, alive), "");
}

TEST(WhoWasItselfStoppedBlamesNobody) {
  const auto alive = [] { return false; };
  Lifeline lifeline;
  lifeline.Heard(0);
  EXPECT_EQ(lifeline.Tick(100, 10'000, alive), "");
  lifeline.Closed(200, false);
  EXPECT_EQ(lifeline.Tick(50'000, 10'000, alive), "");
  EXPECT_EQ(lifeline.Tick(50'100, 10'000, alive), "");
  int64_t now = 50'100;
  while (now < 50'000 + Lifeline::kGraceMs) EXPECT_EQ(lifeline.Tick(now += 100, 10'000, alive), "");
  EXPECT_NE(lifeline.Tick(now += 100, 10'000, alive), "");
}

TEST(AMemberCallsAgainWhileThereIsNoConnection) {
  Lifeline lifeline;
  lifeline.Opened();
  EXPECT(!lifeline.CallsAgain(5'000));
  lifeline.Closed(5'000, true);
  EXPECT(!lifeline.CallsAgain(5'000 + Lifeline::kCallAgainMs - 1));
  EXPECT(lifeline.CallsAgain(5'000 + Lifeline::kCallAgainMs));
  EXPECT(!lifeline.CallsAgain(5'001 + Lifeline::kCallAgainMs));
  EXPECT(lifeline.CallsAgain(5'000 + 2 * Lifeline::kCallAgainMs));
  lifeline.Opened();
  EXPECT(!lifeline.CallsAgain(60'000));
  // Early enough to be back within the grace.
  EXPECT(2 * Lifeline::kCallAgainMs < Lifeline::kGraceMs);
}

}  // namespace
}  // namespace pathways::transport
