// Grants one by one: what goes, what waits, and what is given back.
#include "csrc/scheduler/gang_scheduler.h"

#include "csrc/testing/test.h"

namespace pathways::scheduler {
namespace {

std::shared_ptr<const GangShape> OnDevices(std::vector<uint32_t> devices, uint32_t devices_per_host = 1,
                                           uint32_t hosts_per_island = 100) {
  auto shape = std::make_shared<GangShape>();
  for (const uint32_t device : devices) {
    const uint32_t host = device / devices_per_host;
    shape->Add(host, host / hosts_per_island, device);
  }
  return shape;
}

struct Bench {
  explicit Bench(SchedulerOptions options = {}, uint32_t islands = 1) : scheduler(options) {
    for (uint32_t i = 0; i < islands; ++i) scheduler.AddIsland();
  }
  bool Ask(uint32_t client, uint64_t run, std::shared_ptr<const GangShape> shape, uint64_t work = 0) {
    Result<bool> granted = scheduler.Ask({run, client, work ? work : client, std::move(shape), ++arrivals}, now_ms);
    EXPECT_OK(granted.status());
    return granted.ok() && *granted;
  }
  uint64_t Next() {
    auto grant = scheduler.TakeGrant(now_ms);
    return grant ? grant->run : 0;
  }
  // Teaches how long `work` takes.
  void Measure(uint32_t client, uint64_t work, uint64_t us) {
    const uint64_t run = 1'000'000 + ++arrivals;
    EXPECT(Ask(client, run, OnDevices({0}), work));
    EXPECT(scheduler.PartDone(run, 0, us, true, now_ms) == PartResult::kEnded);
  }
  GangScheduler scheduler;
  uint64_t arrivals = 0;
  uint64_t now_ms = 0;
};

TEST(PoliciesAreKnownByName) {
  for (const Policy policy : {Policy::kFifo, Policy::kFair, Policy::kPriority}) {
    ASSERT_OK_AND_ASSIGN(const Policy parsed, ParsePolicy(PolicyName(policy)));
    EXPECT(parsed == policy);
  }
  const Status status = ParsePolicy("lottery").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_HAS(status.message(), "'fair'");
  EXPECT_HAS(status.message(), "'lottery'");
}

TEST(AGangIsGrantedAtOnceWhileItsDevicesHaveRoom) {
  Bench b;
  b.Measure(1, 7, 1000);  // 1 ms a run, 20 ms of queue
  for (uint64_t run = 1; run <= 20; ++run) EXPECT(b.Ask(1, run, OnDevices({0}), 7));
  EXPECT_EQ(b.scheduler.last_sequence(), 21u);
  EXPECT(!b.Ask(1, 21, OnDevices({0}), 7));
  EXPECT(!b.Ask(1, 21, OnDevices({0}), 7));  // asking again changes nothing
  EXPECT_EQ(b.Next(), 0u);
  EXPECT(b.scheduler.PartDone(1, 0, 1000, true, b.now_ms) == PartResult::kEnded);
  EXPECT_EQ(b.Next(), 21u);
  EXPECT_EQ(b.Next(), 0u);
}

TEST(TinyGangsFillTheWholeWindowOfAClient) {
  Bench b;
  b.Measure(1, 7, 20);
  for (uint64_t run = 1; run <= 256; ++run) EXPECT(b.Ask(1, run, OnDevices({0}), 7));
}

TEST(LongGangsStillOverlapByTwo) {
  Bench b;
  b.Measure(1, 7, 1'000'000);
  EXPECT(b.Ask(1, 1, OnDevices({0}), 7));
  EXPECT(b.Ask(1, 2, OnDevices({0}), 7));
  EXPECT(!b.Ask(1, 3, OnDevices({0}), 7));
}

TEST(DevicesHaveQueuesOfTheirOwn) {
  Bench b;
  b.Measure(1, 7, 1'000'000);
  for (uint32_t device = 0; device < 4; ++device) {
    EXPECT(b.Ask(1, 10 + device, OnDevices({device}), 7));
    EXPECT(b.Ask(1, 20 + device, OnDevices({device}), 7));
  }
  EXPECT(!b.Ask(1, 30, OnDevices({2}), 7));
}

TEST(AnIdIsMintedOnce) {
  Bench b;
  EXPECT(b.Ask(1, 10, OnDevices({0})));
  EXPECT_EQ(b.scheduler.Ask({10, 1, 1, OnDevices({0}), 5}, 0).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(b.scheduler.last_sequence(), 1u);
}

TEST(AGangEndsWithItsLastHostAndEachCountsOnce) {
  Bench b;
  EXPECT(b.Ask(1, 10, OnDevices({0, 1, 2})));
  EXPECT(b.scheduler.PartDone(10, 1, 500'000, true, b.now_ms) == PartResult::kUnfinished);
  EXPECT(b.scheduler.PartDone(10, 1, 500'000, true, b.now_ms) == PartResult::kIgnored);
  EXPECT(b.scheduler.PartDone(10, 9, 500'000, true, b.now_ms) == PartResult::kIgnored);
  EXPECT(b.scheduler.PartDone(10, 0, 250'000, true, b.now_ms) == PartResult::kUnfinished);
  EXPECT(b.scheduler.PartDone(10, 2, 250'000, true, b.now_ms) == PartResult::kEnded);
  EXPECT(b.scheduler.PartDone(10, 2, 250'000, true, b.now_ms) == PartResult::kIgnored);
  EXPECT_EQ(b.scheduler.accounts().at(1).finished, 1u);
  EXPECT_EQ(b.scheduler.accounts().at(1).device_seconds, 1.0);
  EXPECT_EQ(b.scheduler.estimate_us(1), 500'000.0);
}

TEST(AWideGangThatWaitsClosesItsDevicesToYoungerOnes) {
  Bench b;
  b.Measure(1, 1, 1'000'000);
  b.Measure(2, 2, 1'000'000);
  b.Measure(3, 3, 1'000'000);
  EXPECT(b.Ask(1, 10, OnDevices({0})));
  EXPECT(b.Ask(1, 11, OnDevices({0})));
  EXPECT(!b.Ask(2, 20, OnDevices({0, 1})));
  EXPECT_EQ(b.Next(), 0u);
  EXPECT(!b.Ask(3, 30, OnDevices({1})));  // device 1 is idle, but promised
  EXPECT_EQ(b.Next(), 0u);
  b.scheduler.PartDone(10, 0, 1'000'000, true, b.now_ms);
  EXPECT_EQ(b.Next(), 20u);
  EXPECT_EQ(b.Next(), 30u);
  EXPECT_EQ(b.Next(), 0u);
}

TEST(OthersGoOnBesideAGangThatWaits) {
  Bench b;
  b.Measure(1, 1, 1'000'000);
  EXPECT(b.Ask(1, 10, OnDevices({0})));
  EXPECT(b.Ask(1, 11, OnDevices({0})));
  EXPECT(!b.Ask(1, 12, OnDevices({0})));
  EXPECT(!b.Ask(2, 20, OnDevices({1})));  // others ask, too, so the order decides
  EXPECT_EQ(b.Next(), 20u);
}

TEST(AGangOverIslandsIsGrantedOnAllAtOnce) {
  Bench b({}, 2);
  const auto both = OnDevices({0, 1}, 1, 1);
  EXPECT_EQ(both->islands.size(), 2u);
  b.Measure(1, 1, 1'000'000);
  EXPECT(b.Ask(1, 10, OnDevices({1}, 1, 1)));
  EXPECT(b.Ask(1, 11, OnDevices({1}, 1, 1)));
  EXPECT(!b.Ask(2, 20, both));
  EXPECT_EQ(b.scheduler.in_flight(0), 0u);
  b.scheduler.PartDone(10, 1, 1'000'000, true, b.now_ms);
  EXPECT_EQ(b.Next(), 20u);
  EXPECT_EQ(b.scheduler.granted(0), 2u);
  EXPECT_EQ(b.scheduler.granted(1), 3u);
  EXPECT_EQ(b.scheduler.last_sequence(), 4u);
  EXPECT_EQ(b.scheduler.in_flight(0), 1u);
  EXPECT_EQ(b.scheduler.in_flight(1), 2u);
}

TEST(HigherPrioritiesGoFirst) {
  Bench b({Policy::kPriority});
  b.scheduler.AddClient(1, 1, 0);
  b.scheduler.AddClient(2, 1, 5);
  b.scheduler.AddClient(3, 1, 5);
  b.Measure(1, 1, 1'000'000);
  EXPECT(b.Ask(1, 10, OnDevices({0})));
  EXPECT(b.Ask(1, 11, OnDevices({0})));
  EXPECT(!b.Ask(1, 12, OnDevices({0})));
  EXPECT(!b.Ask(3, 30, OnDevices({0})));
  EXPECT(!b.Ask(2, 20, OnDevices({0})));
  EXPECT_EQ(b.Next(), 0u);
  b.scheduler.PartDone(10, 0, 1'000'000, true, b.now_ms);
  EXPECT_EQ(b.Next(), 30u);  // of the two equals, the one that came first
  b.scheduler.PartDone(11, 0, 1'000'000, true, b.now_ms);
  EXPECT_EQ(b.Next(), 20u);
  b.scheduler.PartDone(30, 0, 1'000'000, true, b.now_ms);
  EXPECT_EQ(b.Next(), 12u);
}

TEST(ALostHostEndsItsPartsAndWithdrawsWhoNeedsIt) {
  Bench b;
  b.Measure(1, 1, 1'000'000);
  EXPECT(b.Ask(1, 10, OnDevices({0, 1})));
  EXPECT(b.Ask(1, 11, OnDevices({0, 1})));
  b.scheduler.PartDone(11, 1, 1'000'000, true, b.now_ms);  // its part of this one was over
  EXPECT(!b.Ask(2, 20, OnDevices({0, 1})));
  EXPECT(!b.Ask(3, 30, OnDevices({0})));
  EXPECT_EQ(b.Next(), 0u);
  EXPECT(b.scheduler.HostLost(1, b.now_ms) == std::vector<uint64_t>{10});
  EXPECT(!b.scheduler.is_asking(2));
  EXPECT_EQ(b.Next(), 0u);                                                                    // host 0 is still busy
  EXPECT(b.scheduler.PartDone(10, 0, 1'000'000, true, b.now_ms) == PartResult::kUnfinished);  // its client knows
  EXPECT_EQ(b.Next(), 30u);
}

TEST(AClientThatIsGoneGivesBackWhatItHeld) {
  Bench b;
  b.Measure(1, 1, 1'000'000);
  EXPECT(b.Ask(1, 10, OnDevices({0, 1})));
  EXPECT(b.Ask(1, 11, OnDevices({0, 1})));
  EXPECT(!b.Ask(1, 12, OnDevices({0, 1})));
  EXPECT(!b.Ask(2, 20, OnDevices({1})));
  EXPECT_EQ(b.Next(), 0u);
  b.scheduler.DropClient(1, b.now_ms);
  EXPECT_EQ(b.Next(), 20u);
  EXPECT_EQ(b.scheduler.in_flight(), 1u);
  EXPECT_EQ(b.scheduler.queued_us(0), 5000.0);  // a quarter of the bound for what is not measured yet
  EXPECT(b.scheduler.PartDone(10, 0, 1, true, b.now_ms) == PartResult::kIgnored);
  EXPECT(b.scheduler.PartDone(20, 1, 1, true, b.now_ms) == PartResult::kEnded);
}

TEST(FailuresTeachNothingAboutDurations) {
  Bench b;
  b.Measure(1, 1, 1000);
  EXPECT(b.Ask(1, 10, OnDevices({0})));
  EXPECT(b.scheduler.PartDone(10, 0, 0, false, b.now_ms) == PartResult::kFailed);
  EXPECT_EQ(b.scheduler.estimate_us(1), 1000.0);
}

TEST(WithoutArbitrationEveryGangGoesAtOnce) {
  Bench b({.arbitrate = false});
  b.Measure(1, 1, 1'000'000);
  for (uint64_t run = 1; run <= 100; ++run) EXPECT(b.Ask(1, run, OnDevices({0})));
  EXPECT_EQ(b.scheduler.last_sequence(), 101u);
}

TEST(WhatAHostHasNotFinishedIsThatOfItsStillestDevice) {
  Bench b;
  b.Measure(1, 7, 1'000'000);
  b.now_ms = 1000;
  EXPECT(b.Ask(1, 10, OnDevices({0, 1}), 7));
  b.now_ms = 2000;
  EXPECT(b.Ask(1, 11, OnDevices({0}), 7));
  b.now_ms = 5000;
  std::map<uint32_t, Unfinished> found = b.scheduler.UnfinishedByHost(b.now_ms, 0);
  ASSERT_EQ(found.size(), 2u);  // a host for each device
  EXPECT_EQ(found.at(0).run, 10u);
  EXPECT_EQ(found.at(0).work, 7u);
  EXPECT_EQ(found.at(0).client, 1u);
  EXPECT_EQ(found.at(0).gangs, 2u);
  EXPECT_EQ(found.at(0).still_ms, 4000u);
  EXPECT_EQ(found.at(0).age_ms, 4000u);
  // The next one of a device has had its turn since the one before it ended, however long it has been there.
  EXPECT(b.scheduler.PartDone(10, 0, 1'000'000, true, 4500) == PartResult::kUnfinished);
  found = b.scheduler.UnfinishedByHost(b.now_ms, 0);
  EXPECT_EQ(found.at(0).run, 11u);
  EXPECT_EQ(found.at(0).still_ms, 500u);
  EXPECT_EQ(found.at(0).age_ms, 3000u);
  EXPECT_EQ(found.at(1).run, 10u);
  EXPECT_EQ(found.at(1).still_ms, 4000u);
  EXPECT_EQ(b.scheduler.UnfinishedByHost(b.now_ms, 3500).size(), 1u);  // only what is as old as this
  EXPECT(b.scheduler.PartDone(10, 1, 1'000'000, true, b.now_ms) == PartResult::kEnded);
  b.scheduler.DropClient(1, b.now_ms);
  EXPECT(b.scheduler.UnfinishedByHost(b.now_ms, 0).empty());
}

}  // namespace
}  // namespace pathways::scheduler
