// Gangs that wait for each other are found, and nothing else is.
#include "csrc/controller/deadlock.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

// Hosts with two devices each: device 2h and 2h + 1.
class Island {
 public:
  void Run(uint64_t run, const std::vector<uint32_t>& devices) {
    for (const uint32_t device : devices) shapes_[run].Add(device / 2, 0, device);
  }
  void Waits(uint64_t run, uint32_t device, uint32_t for_host) {
    wire::Stall stall;
    stall.run = run;
    stall.device = device;
    stall.waits_for = for_host;
    stall.what = "function 'f" + std::to_string(run) + "'";
    stalls_[device / 2].push_back(stall);
  }
  Deadlock Find() const {
    return FindDeadlock(
        stalls_,
        [this](uint64_t run) {
          const auto shape = shapes_.find(run);
          return shape == shapes_.end() ? nullptr : &shape->second;
        },
        [](uint32_t host) { return "h" + std::to_string(host); });
  }

 private:
  std::map<uint64_t, scheduler::GangShape> shapes_;
  std::map<uint32_t, std::vector<wire::Stall>> stalls_;
};

TEST(TwoGangsInOppositeOrders) {
  Island island;
  island.Run(1, {0, 2});
  island.Run(2, {0, 2});
  island.Waits(1, 0, 1);
  island.Waits(2, 2, 0);
  const Deadlock found = island.Find();
  EXPECT_EQ(found.runs.size(), size_t{2});
  EXPECT_HAS(found.reason, "function 'f1' on host 'h0' waits in its collective 0 for host 'h1'");
  EXPECT_HAS(found.reason, "function 'f2' on host 'h1'");
}

TEST(ACycleOfThreeOfWhichNoTwoMeetTwice) {
  Island island;
  island.Run(1, {0, 2});
  island.Run(2, {2, 4});
  island.Run(3, {4, 0});
  island.Waits(3, 0, 2);
  island.Waits(1, 2, 0);
  island.Waits(2, 4, 1);
  EXPECT_EQ(island.Find().runs.size(), size_t{3});
}

TEST(WaitingForOneThatComputesIsNoDeadlock) {
  Island island;
  island.Run(1, {0, 2});
  island.Run(2, {0, 2});
  island.Waits(1, 0, 1);
  EXPECT(island.Find().runs.empty());
}

TEST(AChainWithAnEndIsNoDeadlock) {
  Island island;
  island.Run(1, {0, 2});
  island.Run(2, {2, 4});
  island.Waits(1, 0, 1);
  island.Waits(2, 2, 2);
  EXPECT(island.Find().runs.empty());
}

TEST(MembersOfOneGangThatWaitForEachOtherAreNoDeadlock) {
  // Their news crossed: each said it before the other came.
  Island island;
  island.Run(1, {0, 2});
  island.Waits(1, 0, 1);
  island.Waits(1, 2, 0);
  EXPECT(island.Find().runs.empty());
}

TEST(OtherDevicesOfTheHostDoNotMatter) {
  Island island;
  island.Run(1, {0, 2});
  island.Run(2, {1, 3});
  island.Waits(1, 0, 1);
  island.Waits(2, 3, 0);
  EXPECT(island.Find().runs.empty());
}

TEST(RunsThatHaveEndedMeanwhileDoNotMatter) {
  Island island;
  island.Run(1, {0, 2});
  island.Waits(1, 0, 1);
  island.Waits(2, 2, 0);
  EXPECT(island.Find().runs.empty());
}

// Two hosts with a device each, which say for what they wait.
class Watched {
 public:
  Watched() {
    for (const uint64_t run : {1, 2}) {
      for (const uint32_t device : {0, 2}) shapes_[run].Add(device / 2, 0, device);
    }
  }
  // The runs of a cycle that is believed after that.
  size_t Says(uint32_t host, uint64_t run, uint64_t now_ms) {
    std::vector<wire::Stall> stalls;
    if (run != 0) {
      stalls.resize(1);
      stalls[0].run = run;
      stalls[0].device = 2 * host;
      stalls[0].waits_for = 1 - host;
    }
    watch_.Hear(host, std::move(stalls), now_ms);
    const auto shape = [this](uint64_t of) { return shapes_.contains(of) ? &shapes_.at(of) : nullptr; };
    return watch_.Confirmed(now_ms, shape, [](uint32_t of) { return "h" + std::to_string(of); }).runs.size();
  }

 private:
  std::map<uint64_t, scheduler::GangShape> shapes_;
  DeadlockWatch watch_;
};

TEST(ACycleThatLastsIsBelieved) {
  Watched watched;
  size_t found = 0;
  uint64_t at = 0;
  for (; found == 0 && at < 10'000; at += 500) found = watched.Says(0, 1, at) + watched.Says(1, 2, at + 1);
  EXPECT_EQ(found, size_t{2});
  EXPECT(at <= 2'500);
  EXPECT_EQ(watched.Says(0, 1, at) + watched.Says(1, 2, at + 1), size_t{0});  // told once
}

TEST(WhatAHostSaysAgainAfterItsConnectionWasCutIsNoCycleWithWhatOthersSayNow) {
  Watched watched;
  for (uint64_t at = 0; at < 25'000; at += 500) EXPECT_EQ(watched.Says(1, 2, at), size_t{0});  // it waits for the other
  // All that the other one has said meanwhile comes at once: it waited, too, and for something else than now.
  for (int said = 0; said < 50; ++said) EXPECT_EQ(watched.Says(0, 1, 25'000), size_t{0});
  EXPECT_EQ(watched.Says(1, 2, 25'001), size_t{0});
  EXPECT_EQ(watched.Says(0, 0, 25'002), size_t{0});
  for (uint64_t at = 25'500; at < 40'000; at += 500) EXPECT_EQ(watched.Says(1, 2, at), size_t{0});
}

TEST(ACycleWithAHostThatIsSilentIsNotBelieved) {
  Watched watched;
  EXPECT_EQ(watched.Says(0, 1, 0), size_t{0});
  for (uint64_t at = 1; at < 20'000; at += 500) EXPECT_EQ(watched.Says(1, 2, at), size_t{0});
  EXPECT_EQ(watched.Says(0, 1, 20'000), size_t{0});  // perhaps what it said long ago
  size_t found = 0;
  for (uint64_t at = 20'500; found == 0 && at < 25'000; at += 500)
    found += watched.Says(1, 2, at) + watched.Says(0, 1, at + 1);
  EXPECT_EQ(found, size_t{2});
}

}  // namespace
}  // namespace pathways::controller
