// Nobody hangs: aborts, lost hosts, hosts that went on, wrong orders, too little shared memory, and waits without end.
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <numeric>

#include "csrc/base/event.h"
#include "csrc/collective/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::collective {
namespace {

using namespace std::chrono_literals;
using hlo::CollectiveKind;
using hlo::CollectiveOp;
using hlo::CollectiveOperand;

CollectiveOp AllReduce(uint32_t number) {
  CollectiveOp op;
  op.kind = CollectiveKind::kAllReduce;
  op.number = number;
  return op;
}

Status MeetOnes(Communicator& communicator, int device, const CollectiveOp& op, size_t elements, float expected = 0) {
  std::vector<float> values(elements, 1);
  const auto bytes = std::as_writable_bytes(std::span(values));
  const CollectiveOperand operand{DType::kF32, 1, bytes, bytes};
  PW_RETURN_IF_ERROR(communicator.Meet(device, op, {&operand, 1}));
  if (expected != 0 && (values.front() != expected || values.back() != expected)) return Internal("a wrong sum");
  return OkStatus();
}

// Waits until a collective on `communicator` is seen to wait; gives what it waits for.
std::vector<Stall> WaitForStall(const Communicator& communicator) {
  const auto limit = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < limit) {
    auto stalls = communicator.Stalls(1ms);
    if (!stalls.empty()) return stalls;
    std::this_thread::yield();
  }
  return {};
}

TEST(AbortEndsWaitsAndWhatHasNotBegun) {
  Island island(2);
  const auto gang = Island::MakeGang(Island::Grid(2, 1), 5);
  const CollectiveOp op = AllReduce(3);
  Status status;
  std::thread waiter([&] {
    status = island.RunShard(gang, 0, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4); });
  });
  const auto stalls = WaitForStall(island.host(0));
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_EQ(stalls[0].waits_for_host, 1u);
  EXPECT_EQ(stalls[0].run, 5u);
  EXPECT_EQ(stalls[0].op, 3u);
  const auto before = std::chrono::steady_clock::now();
  island.host(0).Abort(5, Cancelled("the user gave up"));
  waiter.join();
  EXPECT(std::chrono::steady_clock::now() - before < 2s);
  EXPECT_HAS(status.message(), "the user gave up");
  island.host(1).Abort(5, Cancelled("the user gave up"));
  const Status later =
      island.RunShard(gang, 1, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4); });
  EXPECT_HAS(later.message(), "the user gave up");
  // The island works on; what the aborted gang left in the lanes is passed over.
  const auto next = Island::MakeGang(Island::Grid(2, 1), 6);
  for (const Status& each :
       island.Run(next, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4, 2); })) {
    EXPECT_OK(each);
  }
}

TEST(LossInTheMiddleOfALargeExchangeEndsIt) {
  for (const Path path : {Path::kMemory, Path::kMessages}) {
    Island island(3, path);
    const auto gang = Island::MakeGang(Island::Grid(3, 1), 1);
    const CollectiveOp op = AllReduce(1);
    // Host 2 never comes, so the others fill its lanes and stop in the middle.
    std::vector<Status> statuses(2);
    std::vector<std::thread> threads;
    for (uint32_t shard = 0; shard < 2; ++shard) {
      threads.emplace_back([&, shard] {
        statuses[shard] =
            island.RunShard(gang, shard, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4 << 20); });
      });
    }
    for (uint32_t host = 0; host < 2; ++host) {
      const auto stalls = WaitForStall(island.host(host));
      EXPECT(!stalls.empty());
      island.host(host).HostLost(2, Unavailable("host2 has died"));
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) EXPECT_HAS(status.message(), "host2 has died");
    const auto later = Island::MakeGang(Island::Grid(3, 1), 2);
    EXPECT_HAS(
        island.RunShard(later, 0, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 1); }).message(),
        "host2 has died");
    const auto without = Island::MakeGang(Island::Grid(2, 1), 3);
    for (const Status& status :
         island.Run(without, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4 << 20, 2); })) {
      EXPECT_OK(status);
    }
  }
}

TEST(AHostThatHasGoneOnIsNamed) {
  Island island(2);
  const CollectiveOp op = AllReduce(1);
  const auto first = Island::MakeGang(Island::Grid(2, 1), 1);
  const auto second = Island::MakeGang(Island::Grid(2, 1), 2);
  Status status[2];
  // Host 0 runs the gangs in order, host 1 leaves out the first.
  std::thread host0([&] {
    status[0] = island.RunShard(first, 0, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4); });
  });
  std::thread host1([&] {
    status[1] = island.RunShard(second, 1, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4); });
  });
  host0.join();
  EXPECT_EQ(status[0].code(), Code::kAborted);
  EXPECT_HAS(status[0].message(), "host 1 (host1) at place 2");
  island.host(1).Abort(2, Cancelled("over"));
  host1.join();
}

TEST(TwoOrdersOnTwoDevicesAreSeenAsAStall) {
  // Each host runs two gangs on two devices, and each waits for the other's other gang: a deadlock, unless noticed.
  Island island(2);
  const CollectiveOp op = AllReduce(9);
  const auto a = Island::MakeGang({{0, 0}, {1, 0}}, 1);
  const auto b = Island::MakeGang({{0, 0}, {1, 0}}, 2);
  Status status[2];
  std::thread host0([&] {
    status[0] = island.RunShard(b, 0, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4); });
  });
  const auto stalls = WaitForStall(island.host(0));
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_EQ(stalls[0].waits_for_host, 1u);
  EXPECT_HAS(stalls[0].what, "gang 2");
  std::thread host1([&] {
    status[1] = island.RunShard(a, 1, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4); });
  });
  host1.join();  // finds host 0 at a later gang
  EXPECT_HAS(status[1].message(), "in different orders");
  island.host(0).Stop(Cancelled("stopped"));
  host0.join();
  EXPECT_HAS(status[0].message(), "stopped");
}

TEST(HostsAtDifferentInstructionsAreToldBoth) {
  Island island(2, Path::kMemory, 1s);
  const auto gang = Island::MakeGang(Island::Grid(2, 2), 1);
  const auto statuses = island.Run(
      gang, [&](uint32_t shard, Communicator& c, int d) { return MeetOnes(c, d, AllReduce(shard == 3 ? 8 : 4), 4); });
  for (uint32_t shard : {2u, 3u}) {
    EXPECT_EQ(statuses[shard].code(), Code::kInternal);
    // Whichever of them came first.
    EXPECT_HAS(statuses[shard].message(), "all devices must be at the same instruction");
    EXPECT_HAS(statuses[shard].message(), " 4");
    EXPECT_HAS(statuses[shard].message(), " 8");
  }
}

TEST(HostsWithDifferentSizesFail) {
  Island island(2, Path::kMemory, 500ms);
  const auto gang = Island::MakeGang(Island::Grid(2, 1), 1);
  const auto statuses = island.Run(
      gang, [&](uint32_t shard, Communicator& c, int d) { return MeetOnes(c, d, AllReduce(1), shard == 0 ? 4 : 8); });
  EXPECT(!statuses[0].ok());
  EXPECT(!statuses[1].ok());
}

TEST(AnEndlessWaitNamesWhoDidNotArrive) {
  Island island(2, Path::kMemory, 100ms);
  const auto gang = Island::MakeGang(Island::Grid(2, 2), 1);
  const CollectiveOp op = AllReduce(2);
  const Status alone =
      island.RunShard(gang, 0, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4); });
  EXPECT_EQ(alone.code(), Code::kDeadlineExceeded);
  EXPECT_HAS(alone.message(), "device 1 did not arrive");
  const auto wide = Island::MakeGang(Island::Grid(2, 1), 2);
  const Status status =
      island.RunShard(wide, 0, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4); });
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_HAS(status.message(), "host 1 (host1) did not arrive");
  EXPECT_HAS(status.message(), "gang 2");
}

TEST(ADeviceThatEndsEarlyFailsTheOthers) {
  Island island(1);
  const auto gang = Island::MakeGang(Island::Grid(1, 2), 1);
  const CollectiveOp op = AllReduce(2);
  const auto statuses = island.Run(
      gang, [&](uint32_t shard, Communicator& c, int d) { return shard == 0 ? OkStatus() : MeetOnes(c, d, op, 4); });
  EXPECT_EQ(statuses[1].code(), Code::kAborted);
  EXPECT_HAS(statuses[1].message(), "device 0 has ended");
}

TEST(NodesOfOneRunMayShareAPlaceInTheOrder) {
  Island island(2);
  const CollectiveOp op = AllReduce(1);
  for (uint32_t node = 1; node <= 200; ++node) {
    const auto gang = Island::MakeGang(Island::Grid(2, 1), 1, node);
    for (const Status& status :
         island.Run(gang, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4, 2); })) {
      ASSERT_OK(status);
    }
  }
}

// A later run's first node and an earlier run's second one may be under way at once, on other devices.
TEST(LaunchesOfDifferentRunsAreNeverTakenForEachOther) {
  Island island(2);
  const CollectiveOp op = AllReduce(1);
  const auto first = Island::MakeGang({{0, 0}, {1, 0}}, 1, 1);
  const auto second = Island::MakeGang({{0, 1}, {1, 1}}, 2, 0);
  const auto meet = [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4, 2); };
  island.host(0).Begin(0, first, 0);
  for (const Status& status : island.Run(second, meet)) EXPECT_OK(status);
  Status there;
  std::thread other([&] { there = island.RunShard(first, 1, meet); });
  EXPECT_OK(meet(0, island.host(0), 0));
  island.host(0).End(0);
  other.join();
  EXPECT_OK(there);
}

TEST(WhatIsLeftOfAnEarlierNodeIsSkippedAndALaterOneIsAnError) {
  Island island(2);
  const CollectiveOp op = AllReduce(1);
  const auto meet = [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4, 2); };
  const auto skip = [](uint32_t, Communicator&, int) { return OkStatus(); };
  // Host 0 sends its part of node 1, which host 1 then leaves out.
  const auto one = Island::MakeGang(Island::Grid(2, 1), 1, 1);
  island.host(0).Begin(0, one, 0);
  std::thread waits([&] { (void)meet(0, island.host(0), 0); });
  EXPECT_EQ(WaitForStall(island.host(0)).size(), 1u);
  EXPECT_OK(island.RunShard(one, 1, skip));
  island.host(0).Abort(1, Cancelled("given up"));
  waits.join();
  island.host(0).End(0);
  for (const Status& status : island.Run(Island::MakeGang(Island::Grid(2, 1), 2, 0), meet)) EXPECT_OK(status);
  // Host 1 is at node 1 of run 3 when host 0 is at node 2.
  Status behind;
  std::thread other([&] { behind = island.RunShard(Island::MakeGang(Island::Grid(2, 1), 3, 1), 1, meet); });
  const auto two = Island::MakeGang(Island::Grid(2, 1), 3, 2);
  island.host(0).Begin(0, two, 0);
  std::thread ahead([&] { (void)meet(0, island.host(0), 0); });
  other.join();
  EXPECT_EQ(behind.code(), Code::kAborted);
  EXPECT_HAS(behind.message(), "at place 3.1 of the cluster's order");
  island.host(0).Abort(3, behind);
  ahead.join();
  island.host(0).End(0);
}

TEST(FullSharedMemoryIsAnErrorWithoutADataPlane) {
  Island island(2);
  // Files may grow to half a lane from now on, so /dev/shm refuses as if it were full.
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 512 << 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto gang = Island::MakeGang(Island::Grid(2, 1), 1);
  const CollectiveOp op = AllReduce(1);
  const auto statuses = island.Run(gang, [&](uint32_t, Communicator& c, int d) { return MeetOnes(c, d, op, 4, 2); });
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_HAS(status.message(), "cannot reserve");
  }
}

TEST(WithoutAGangOrWithAnUnknownTypeThereIsNoCollective) {
  Island island(1);
  EXPECT_EQ(MeetOnes(island.host(0), 0, AllReduce(1), 1).code(), Code::kFailedPrecondition);
  const auto gang = Island::MakeGang(Island::Grid(1, 2), 1);
  const auto statuses = island.Run(gang, [&](uint32_t, Communicator& c, int d) {
    std::vector<std::byte> bytes(4);
    const CollectiveOperand operand{DType::kF8E4M3FN, 1, bytes, bytes};
    const CollectiveOp op = AllReduce(1);
    return c.Meet(d, op, {&operand, 1});
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kUnimplemented);
    EXPECT_HAS(status.message(), "sum of f8e4m3fn");
  }
}

TEST(ARestartedHostReplacesWhatADeadOneLeft) {
  // A file of the right name whose owner holds no lock: a leftover.
  const std::string name = "/ptpathways-collective-left-" + std::to_string(::getpid()) + "-0";
  FILE* file = std::fopen(("/dev/shm" + name).c_str(), "w");
  ASSERT(file != nullptr);
  std::fputs(std::string(4096, 'x').c_str(), file);
  std::fclose(file);
  EXPECT_EQ(Segment::Open(name).status().code(), Code::kNotFound);
  ASSERT_OK_AND_ASSIGN(auto made, Segment::Create(name, 4096));
  EXPECT_EQ(Segment::Open(name).status().code(), Code::kNotFound);  // not ready
  made->SetReady();
  EXPECT_OK(Segment::Open(name).status());
  EXPECT_EQ(Segment::Create(name, 4096).status().code(), Code::kAlreadyExists);
}

}  // namespace
}  // namespace pathways::collective
