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

}  // namespace
}  // namespace pathways::controller
