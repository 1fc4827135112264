// Whole schedules: clients that ask, devices that take their time, a clock that the test turns.
#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>
#include <random>

#include "csrc/scheduler/gang_scheduler.h"
#include "csrc/testing/test.h"

namespace pathways::scheduler {
namespace {

// What one client submits: `window` gangs at most in flight or asking, of random length, on random devices.
struct Workload {
  double weight = 1;
  int32_t priority = 0;
  double mean_us = 1000;
  double spread = 0;     // lengths vary by up to this share
  uint32_t devices = 1;  // of each gang
  uint32_t islands = 1;  // that each gang spans
  double pause_us = 0;   // after each completed gang
  uint64_t starts_us = 0;
  uint32_t works = 1;  // functions, each of a length of its own
};

// Devices with queues in the order granted; a gang begins when all its devices have it at their heads.
class World {
 public:
  World(SchedulerOptions options, std::vector<Workload> clients, uint32_t islands, uint32_t devices_per_island,
        uint64_t seed)
      : scheduler_(options), clients_(std::move(clients)), per_island_(devices_per_island), random_(seed) {
    for (uint32_t i = 0; i < islands; ++i) scheduler_.AddIsland();
    queues_.resize(size_t{islands} * devices_per_island);
    newest_.resize(queues_.size());
    state_.resize(clients_.size());
    for (uint32_t c = 0; c < clients_.size(); ++c) {
      scheduler_.AddClient(c + 1, clients_[c].weight, clients_[c].priority);
      events_.push({static_cast<double>(clients_[c].starts_us), c, 0});
    }
  }

  void RunUntil(double end_us) {
    while (!events_.empty() && events_.top().at_us <= end_us) {
      const Event event = events_.top();
      events_.pop();
      now_us_ = event.at_us;
      if (event.run == 0) {
        state_[event.client].ready = true;
        AskNext(event.client);
      } else {
        Finish(event.run);
      }
      Pump();
    }
    now_us_ = end_us;
  }

  // Device-microseconds of finished gangs.
  double Received(uint32_t client) const { return state_[client].received; }
  uint64_t Finished(uint32_t client) const { return state_[client].finished; }
  double LongestWait(uint32_t client) const { return state_[client].longest_wait_us; }
  double MostQueued() const { return most_queued_us_; }
  bool Overtaken() const { return overtaken_; }
  const std::vector<uint64_t>& Trace() const { return trace_; }
  double BusyShare(double span_us) const {
    double busy = 0;
    for (const State& state : state_) busy += state.received;
    return busy / (span_us * static_cast<double>(queues_.size()));
  }
  bool HostsAgree() const { return agree_; }
  GangScheduler& scheduler() { return scheduler_; }

 private:
  struct Event {
    double at_us;
    uint32_t client;
    uint64_t run;  // 0: the client goes on
    bool operator<(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : run != other.run ? run > other.run : client > other.client;
    }
  };
  struct State {
    bool ready = false;
    uint64_t asked_run = 0;
    double asked_at = 0;
    double received = 0;
    double longest_wait_us = 0;
    uint64_t finished = 0;
    uint32_t in_flight = 0;
  };
  struct Run {
    Gang gang;
    double length_us;
    std::vector<uint32_t> devices;
    bool begun = false;
  };

  void AskNext(uint32_t c) {
    State& state = state_[c];
    constexpr uint32_t kWindow = 256;
    while (state.ready && state.asked_run == 0 && state.in_flight < kWindow) {
      Run run = Make(c);
      const uint64_t id = run.gang.run;
      state.asked_at = now_us_;
      Result<bool> granted = scheduler_.Ask(run.gang, static_cast<uint64_t>(now_us_ / 1000));
      EXPECT_OK(granted.status());
      runs_.emplace(id, std::move(run));
      if (granted.ok() && *granted) {
        Granted(id);
      } else {
        state.asked_run = id;
      }
      if (clients_[c].pause_us > 0) state.ready = false;
    }
  }

  Run Make(uint32_t c) {
    const Workload& load = clients_[c];
    const uint64_t work = random_() % load.works;
    std::uniform_real_distribution<double> noise(1 - load.spread, 1 + load.spread);
    Run run;
    run.length_us = std::max(1.0, load.mean_us * static_cast<double>(1 + work) * noise(random_));
    auto shape = std::make_shared<GangShape>();
    const uint32_t islands = static_cast<uint32_t>(queues_.size()) / per_island_;
    const uint32_t first_island = static_cast<uint32_t>(random_() % (islands - load.islands + 1));
    for (uint32_t i = 0; i < load.islands; ++i) {
      std::vector<uint32_t> pool(per_island_);
      for (uint32_t d = 0; d < per_island_; ++d) pool[d] = (first_island + i) * per_island_ + d;
      std::shuffle(pool.begin(), pool.end(), random_);
      for (uint32_t d = 0; d < load.devices; ++d) {
        shape->Add(pool[d], first_island + i, pool[d]);  // one device a host
        run.devices.push_back(pool[d]);
      }
    }
    run.gang = {++next_run_, c + 1, uint64_t{c} * 100 + work, std::move(shape), next_run_};
    return run;
  }

  void Granted(uint64_t id) {
    Run& run = runs_.at(id);
    trace_.push_back(id);
    State& state = state_[run.gang.client - 1];
    ++state.in_flight;
    state.longest_wait_us = std::max(state.longest_wait_us, now_us_ - state.asked_at);
    // A host sees the gangs of its island by rising sequence numbers.
    for (const uint32_t device : run.devices) {
      const uint64_t sequence = scheduler_.last_sequence();
      if (sequence <= newest_[device]) agree_ = false;
      newest_[device] = sequence;
      queues_[device].push_back(id);
    }
    for (uint32_t island = 0; island * per_island_ < queues_.size(); ++island) {
      most_queued_us_ = std::max(most_queued_us_, scheduler_.queued_us(island));
    }
    Begin(id);
  }

  void Begin(uint64_t id) {
    Run& run = runs_.at(id);
    for (const uint32_t device : run.devices) {
      if (queues_[device].front() != id) return;
    }
    run.begun = true;
    events_.push({now_us_ + run.length_us, run.gang.client - 1, id});
  }

  void Finish(uint64_t id) {
    Run run = std::move(runs_.at(id));
    runs_.erase(id);
    State& state = state_[run.gang.client - 1];
    --state.in_flight;
    ++state.finished;
    state.received += run.length_us * static_cast<double>(run.devices.size());
    for (const uint32_t device : run.devices) {
      queues_[device].pop_front();
      scheduler_.PartDone(id, device, static_cast<uint64_t>(run.length_us), true,
                          static_cast<uint64_t>(now_us_ * 1e-3));
    }
    for (const uint32_t device : run.devices) {
      if (!queues_[device].empty() && !runs_.at(queues_[device].front()).begun) Begin(queues_[device].front());
    }
    const double pause = clients_[run.gang.client - 1].pause_us;
    if (pause > 0) {
      events_.push({now_us_ + pause, run.gang.client - 1, 0});
    } else {
      AskNext(run.gang.client - 1);
    }
  }

  void Pump() {
    while (auto grant = scheduler_.TakeGrant(static_cast<uint64_t>(now_us_ / 1000))) {
      if (scheduler_.options().policy == Policy::kPriority) {
        for (uint32_t c = 0; c < clients_.size(); ++c) {
          if (clients_[c].priority > clients_[grant->client - 1].priority && scheduler_.is_asking(c + 1) && !Waits(c)) {
            overtaken_ = true;
          }
        }
      }
      state_[grant->client - 1].asked_run = 0;
      Granted(grant->run);
      AskNext(grant->client - 1);
    }
  }
  // Whether one of the devices that a client asks for is full.
  bool Waits(uint32_t c) const {
    const Run& run = runs_.at(state_[c].asked_run);
    return std::any_of(run.devices.begin(), run.devices.end(),
                       [this](uint32_t device) { return queues_[device].size() >= 2; });
  }

  GangScheduler scheduler_;
  const std::vector<Workload> clients_;
  const uint32_t per_island_;
  std::mt19937_64 random_;
  std::vector<State> state_;
  std::vector<std::deque<uint64_t>> queues_;  // by device
  std::unordered_map<uint64_t, Run> runs_;
  std::vector<uint64_t> newest_;  // by device: the last gang's place in the cluster's order
  std::priority_queue<Event> events_;
  std::vector<uint64_t> trace_;
  double now_us_ = 0;
  double most_queued_us_ = 0;
  uint64_t next_run_ = 0;
  bool agree_ = true;
  bool overtaken_ = false;
};

constexpr double kSecond = 1e6;

void ExpectShares(World& world, const std::vector<Workload>& clients, double tolerance) {
  double weights = 0, received = 0;
  for (uint32_t c = 0; c < clients.size(); ++c) {
    weights += clients[c].weight;
    received += world.Received(c);
  }
  for (uint32_t c = 0; c < clients.size(); ++c) {
    const double wanted = clients[c].weight / weights, got = world.Received(c) / received;
    if (std::abs(got / wanted - 1) > tolerance) {
      testing::Fail(__FILE__, __LINE__,
                    "client " + std::to_string(c) + " of weight " + std::to_string(clients[c].weight) + " got " +
                        std::to_string(got) + " instead of " + std::to_string(wanted));
    }
  }
}

TEST(WeightsAreKeptWithinFivePercentWhateverTheLengthsOfGangs) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Workload> clients(4);
    for (uint32_t c = 0; c < 4; ++c) {
      clients[c].weight = 1 << c;
      clients[c].mean_us = 100.0 * static_cast<double>(1 + random() % 100);  // 0.1 to 10 ms
      clients[c].spread = 0.5;
      clients[c].works = 1 + static_cast<uint32_t>(random() % 4);
    }
    World world({Policy::kFair}, clients, 1, 1, seed);
    world.RunUntil(20 * kSecond);
    ExpectShares(world, clients, 0.05);
    EXPECT(world.BusyShare(20 * kSecond) > 0.99);
    EXPECT(world.HostsAgree());
  }
}

TEST(WeightsAreKeptForGangsThatTakeAllDevices) {
  std::vector<Workload> clients(4);
  for (uint32_t c = 0; c < 4; ++c) {
    clients[c].weight = 8 >> c;
    clients[c].mean_us = 400.0 * (1 + c);
    clients[c].spread = 0.3;
    clients[c].devices = 8;
  }
  World world({Policy::kFair}, clients, 1, 8, 3);
  world.RunUntil(10 * kSecond);
  ExpectShares(world, clients, 0.05);
  EXPECT(world.BusyShare(10 * kSecond) > 0.99);
}

TEST(AnIdleClientSavesNoCredit) {
  std::vector<Workload> clients(2);
  clients[1].starts_us = 10'000'000;
  World world({Policy::kFair}, clients, 1, 1, 1);
  world.RunUntil(10 * kSecond);
  const double before = world.Received(0);
  world.RunUntil(12 * kSecond);
  // From its first moment on the late one gets its half, and no more.
  EXPECT(std::abs((world.Received(0) - before) / kSecond - 1) < 0.05);
  EXPECT(std::abs(world.Received(1) / kSecond - 1) < 0.05);
}

TEST(AClientThatPausesLeavesItsTimeToOthersAndIsServedSoon) {
  std::vector<Workload> clients(2);
  clients[0].mean_us = 5000;
  clients[1].mean_us = 500;
  clients[1].pause_us = 10'000;
  World world({Policy::kFair}, clients, 1, 1, 1);
  world.RunUntil(10 * kSecond);
  EXPECT(world.BusyShare(10 * kSecond) > 0.99);
  // It waits for what is queued on the device, never for more: the bound and the gang that exceeds it.
  EXPECT(world.LongestWait(1) < 2 * 5000 + 1);
  EXPECT(world.Finished(1) > 10 * kSecond / (10'000 + 500 + 25'000 + 5000) * 0.9);
}

TEST(EveryoneIsServedUnderFifoAndFairWhateverTheShapes) {
  for (const Policy policy : {Policy::kFifo, Policy::kFair}) {
    for (uint64_t seed = 1; seed <= 25; ++seed) {
      std::mt19937_64 random(seed);
      std::vector<Workload> clients(2 + random() % 5);
      for (Workload& load : clients) {
        load.weight = static_cast<double>(1 + random() % 8);
        load.mean_us = 200.0 * static_cast<double>(1 + random() % 20);
        load.spread = 0.9;
        load.devices = 1 + static_cast<uint32_t>(random() % 4);
        load.islands = 1 + static_cast<uint32_t>(random() % 3);
        load.works = 1 + static_cast<uint32_t>(random() % 3);
      }
      World world({policy}, clients, 3, 4, seed);
      world.RunUntil(10 * kSecond);
      for (uint32_t c = 0; c < clients.size(); ++c) {
        EXPECT(world.Finished(c) > 10);
        EXPECT(world.LongestWait(c) < 2 * kSecond);
      }
      EXPECT(world.HostsAgree());
    }
  }
}

TEST(QueuesStayShort) {
  std::vector<Workload> clients(4);
  for (uint32_t c = 0; c < 4; ++c) clients[c].mean_us = 3000, clients[c].devices = 1 + c;
  World world({Policy::kFair}, clients, 1, 4, 5);
  world.RunUntil(5 * kSecond);
  EXPECT(world.MostQueued() < 20'000 + 5000 + 1);  // the bound, and the one gang that reaches over it
}

TEST(LowerPrioritiesGetOnlyWhatIsLeft) {
  std::vector<Workload> clients(3);
  clients[0].priority = 1;
  clients[0].pause_us = 5000;  // leaves room
  clients[1].priority = 0;
  clients[2].priority = -3;  // never its turn: the one above takes all that is left
  World world({Policy::kPriority}, clients, 1, 1, 2);
  world.RunUntil(10 * kSecond);
  EXPECT(!world.Overtaken());
  EXPECT(world.LongestWait(0) < 2 * 1000 + 20'000);
  EXPECT(world.Received(1) > 0.7 * 10 * kSecond);
  EXPECT(world.Finished(2) < 20);
  EXPECT(world.BusyShare(10 * kSecond) > 0.99);
}

TEST(TheSameEventsGiveTheSameOrder) {
  std::vector<Workload> clients(5);
  for (uint32_t c = 0; c < 5; ++c) {
    clients[c].mean_us = 300 * (1 + c);
    clients[c].spread = 0.4;
    clients[c].devices = 1 + c % 3;
  }
  for (const Policy policy : {Policy::kFifo, Policy::kFair, Policy::kPriority}) {
    World first({policy}, clients, 2, 4, 9), second({policy}, clients, 2, 4, 9);
    first.RunUntil(2 * kSecond);
    second.RunUntil(2 * kSecond);
    EXPECT(first.Trace() == second.Trace());
    EXPECT(first.Trace().size() > 1000);
  }
}

}  // namespace
}  // namespace pathways::scheduler
