// Whole schedules in virtual time: the real controller state over simulated hosts.
#include "csrc/sim/virtual_cluster.h"

#include <numeric>

#include "csrc/sim/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::sim {
namespace {

using Client = VirtualCluster::Client;

VirtualSpec Spec(uint32_t hosts, uint32_t devices_per_host) {
  VirtualSpec spec;
  spec.cluster.hosts = hosts;
  spec.cluster.devices_per_host = devices_per_host;
  spec.cluster.build = spec.controller.build = "1";
  spec.cluster.compiler.default_cost_us = 100;
  return spec;
}

std::vector<uint32_t> Devices(uint32_t count, uint32_t first = 0) {
  std::vector<uint32_t> devices(count);
  std::iota(devices.begin(), devices.end(), first);
  return devices;
}

const TensorType kScalar{DType::kF32, {}};

TEST(ARunOverAllHostsStartsEverywhereAtOnce) {
  VirtualCluster cluster(Spec(4, 2));
  Client* client = cluster.AddClient("c");
  const std::vector<uint32_t> devices = Devices(8);
  const uint64_t function = client->Register("f", devices, false, ScalarModule());
  const uint64_t input = client->Put(kScalar, devices);
  int ended = 0;
  uint64_t output = input;
  for (int i = 0; i < 10; ++i) {
    output = client->Run(function, devices, {output}, 1, [&](uint64_t, const Status& status) {
      EXPECT_OK(status);
      ++ended;
    });
  }
  Status fetched = Internal("no answer");
  client->Fetch(output, 5, 5, [&](const wire::Fetched& answer) {
    fetched = answer.status;
    EXPECT_EQ(answer.inline_data, std::string(4, '\0'));
  });
  EXPECT(cluster.Run());
  EXPECT_OK(cluster.CheckIdle());
  EXPECT_OK(client->refusal());
  EXPECT_EQ(ended, 10);
  EXPECT_OK(fetched);
  ASSERT_EQ(cluster.world().trace.intervals().size(), 80u);
  const auto& intervals = cluster.world().trace.intervals();
  for (const Interval& interval : intervals) {
    EXPECT_EQ(interval.end - interval.start, 100'000);
    EXPECT_EQ((interval.start - intervals[0].start) % 100'000, 0);  // back to back
  }
}

// Each client chains gangs of collectives over all devices, two in flight.
struct TwoClients {
  TwoClients(uint32_t gangs, VirtualSpec spec) : cluster(std::move(spec)) {
    const std::vector<uint32_t> devices = Devices(cluster.device_count());
    struct Ready {
      Client* client;
      uint64_t function, input;
    };
    std::vector<Ready> ready;
    for (const char* name : {"ping", "pong"}) {
      Client* client = cluster.AddClient(name);
      ready.push_back({client, client->Register(name, devices, false, ScalarModule()), client->Put(kScalar, devices)});
    }
    cluster.Run();
    for (uint32_t k = 0; k < gangs; ++k) {
      for (const Ready& one : ready) {
        one.client->Run(one.function, devices, {one.input}, 1,
                        [this](uint64_t, const Status& status) { ended += status.ok(); });
      }
    }
    cluster.Run();
  }
  VirtualCluster cluster;
  uint32_t ended = 0;
};

TEST(ByArrivalTwoClientsDeadlockAndTheReportNamesThem) {
  int deadlocks = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    VirtualSpec spec = Spec(4, 1);
    spec.in_order = false;
    spec.controller.scheduling.arbitrate = false;
    spec.jitter_ns = 200'000;
    spec.seed = seed;
    TwoClients two(4, std::move(spec));
    const Status idle = two.cluster.CheckIdle();
    if (idle.ok()) {
      EXPECT_EQ(two.ended, 8u);
      continue;
    }
    ++deadlocks;
    EXPECT(idle.code() == Code::kAborted);
    EXPECT_HAS(idle.ToString(), "client 1's function 'ping'");
    EXPECT_HAS(idle.ToString(), "client 2's function 'pong'");
    EXPECT_HAS(idle.ToString(), "waits for device");
    // It is told within the run and not by waiting: the devices go on when the circle is broken.
    while (!two.cluster.world().fleet.BreakDeadlock().ok()) two.cluster.Run();
    EXPECT_OK(two.cluster.CheckIdle());
  }
  EXPECT(deadlocks > 10);
}

TEST(WithTheSchedulerNoInterleavingDeadlocks) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    VirtualSpec spec = Spec(3, 1);
    spec.jitter_ns = 200'000;
    spec.seed = seed;
    TwoClients two(3, std::move(spec));
    const Status idle = two.cluster.CheckIdle();
    if (!idle.ok()) testing::Fail(__FILE__, __LINE__, "seed " + std::to_string(seed) + ": " + idle.ToString());
    EXPECT_EQ(two.ended, 6u);
  }
}

TEST(ALostHostFailsWhatNeedsItAndOthersGoOn) {
  VirtualCluster cluster(Spec(3, 1));
  Client* wide = cluster.AddClient("wide");
  Client* narrow = cluster.AddClient("narrow");
  const uint64_t over_all = wide->Register("all", Devices(3), false, ScalarModule());
  const uint64_t over_two = narrow->Register("two", Devices(2), false, ScalarModule());
  const uint64_t in = wide->Put(kScalar, Devices(3));
  const uint64_t in_two = narrow->Put(kScalar, Devices(2));
  cluster.Run();
  std::vector<Status> ends;
  int others = 0;
  for (int i = 0; i < 5; ++i) {
    wide->Run(over_all, Devices(3), {in}, 1, [&](uint64_t, const Status& status) { ends.push_back(status); });
    narrow->Run(over_two, Devices(2), {in_two}, 1, [&](uint64_t, const Status& status) { others += status.ok(); });
  }
  EXPECT(!cluster.Run(cluster.now() + 350'000));
  cluster.LoseHost(2, "its power failed");
  cluster.Run();
  EXPECT_OK(cluster.CheckIdle());
  EXPECT_EQ(ends.size(), 5u);
  EXPECT(!ends.back().ok());
  EXPECT_HAS(ends.back().ToString(), "its power failed");
  EXPECT_EQ(others, 5);
}

TEST(AClientThatVanishesLeavesNothing) {
  VirtualCluster cluster(Spec(2, 2));
  Client* gone = cluster.AddClient("gone");
  Client* stays = cluster.AddClient("stays");
  int ended = 0;
  for (Client* client : {gone, stays}) {
    const uint64_t function = client->Register("f", Devices(4), false, ScalarModule());
    const uint64_t input = client->Put(kScalar, Devices(4));
    for (int i = 0; i < 20; ++i) {
      client->Run(function, Devices(4), {input}, 1, [&ended](uint64_t, const Status& status) { ended += status.ok(); });
    }
  }
  EXPECT(!cluster.Run(cluster.now() + 500'000));
  gone->Vanish();
  cluster.Run();
  EXPECT_OK(cluster.CheckIdle());
  EXPECT_EQ(stays->unfinished(), 0u);
  EXPECT_EQ(cluster.host(0).buffer_count(), 21u);  // what stays: 20 results and the input
  EXPECT_EQ(cluster.world().fleet.queued(0), 0u);
}

TEST(ClientsThatTogetherNeedThreeTimesTheMemoryAllFinish) {
  constexpr int kClients = 10, kSteps = 5;
  VirtualSpec spec = Spec(2, 2);
  spec.cluster.memory_bytes = 20 << 20;
  VirtualCluster cluster(std::move(spec));
  const TensorType large{DType::kF32, {1 << 20}};  // 4 MiB; a step of a client holds two, all of them 80
  const auto module = MakeModule({{large}, large, "negate", "", {}});
  int finished = 0;
  std::vector<Client*> clients;
  for (int i = 0; i < kClients; ++i) {
    Client* client = cluster.AddClient("c" + std::to_string(i));
    clients.push_back(client);
    const uint64_t function = client->Register("f", Devices(4), false, module);
    uint64_t state = client->Put(large, Devices(4));
    for (int step = 0; step < kSteps; ++step) {
      const uint64_t next = client->Run(function, Devices(4), {state}, 1, [&finished](uint64_t, const Status& status) {
        EXPECT_OK(status);
        finished += status.ok();
      });
      client->Free(state, Devices(4));
      state = next;
    }
    client->Fetch(state, 0, 0, [](const wire::Fetched& answer) { EXPECT_OK(answer.status); });
    client->Free(state, Devices(4));
  }
  EXPECT(cluster.Run());
  EXPECT_OK(cluster.CheckIdle());
  EXPECT_EQ(finished, kClients * kSteps);
  for (Client* client : clients) {
    EXPECT_OK(client->refusal());
    EXPECT(client->failures().empty());
  }
  EXPECT_EQ(cluster.host(0).bytes_used(), 0);
  EXPECT_EQ(cluster.host(1).buffer_count(), 0u);
}

TEST(WeightedClientsGetTheirShares) {
  const std::vector<double> weights = {1, 2, 4, 8};
  VirtualSpec spec = Spec(2, 2);
  spec.controller.scheduling.policy = scheduler::Policy::kFair;
  spec.controller.scheduling.queue_us = 2000;
  spec.cluster.compiler.costs = {{"f0", 300}, {"f1", 1000}, {"f2", 450}, {"f3", 700}};
  VirtualCluster cluster(std::move(spec));
  struct Loop {
    Client* client;
    uint64_t function, input;
    std::function<void()> submit;
  };
  std::vector<std::unique_ptr<Loop>> loops;
  for (size_t i = 0; i < weights.size(); ++i) {
    auto loop = std::make_unique<Loop>();
    loop->client = cluster.AddClient("c" + std::to_string(i), weights[i]);
    loop->function = loop->client->Register("f" + std::to_string(i), Devices(4), false, ScalarModule());
    loop->input = loop->client->Put(kScalar, Devices(4));
    loop->submit = [raw = loop.get()] {
      const uint64_t output = raw->client->Run(raw->function, Devices(4), {raw->input}, 1,
                                               [raw](uint64_t, const Status&) { raw->submit(); });
      raw->client->Free(output, Devices(4));
    };
    loops.push_back(std::move(loop));
  }
  for (auto& loop : loops) {
    for (int i = 0; i < 8; ++i) loop->submit();
  }
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT(!cluster.Run(cluster.now() + kSecond));  // long enough for the estimates to settle
  cluster.world().trace.Clear();
  EXPECT(!cluster.Run(cluster.now() + 4 * kSecond));
  std::map<uint32_t, double> busy;
  double all = 0;
  for (const Interval& interval : cluster.world().trace.intervals()) {
    busy[interval.client] += static_cast<double>(interval.end - interval.start);
    all += static_cast<double>(interval.end - interval.start);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = busy[loops[i]->client->index()] / all, expected = weights[i] / 15;
    if (std::abs(share / expected - 1) > 0.05) {
      testing::Fail(
          __FILE__, __LINE__,
          "client " + std::to_string(i) + " got " + std::to_string(share) + " of " + std::to_string(expected));
    }
  }
  EXPECT(all > 0.95 * 4 * 4 * static_cast<double>(kSecond));  // four devices, busy nearly all the time
}

}  // namespace
}  // namespace pathways::sim
