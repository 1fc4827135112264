// Back-pressure, driven without workers or clocks.
#include "csrc/controller/memory_ledger.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "csrc/testing/test.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {
namespace {

using Answer = MemoryLedger::Answer;

uint64_t Id(uint32_t client, uint64_t n) { return (uint64_t{client} << wire::kClientShift) | n; }

// One host with one device, unless told otherwise.
MemoryLedger OneDevice(int64_t limit, int64_t staging = 1 << 20) {
  MemoryLedger ledger;
  ledger.AddHost(0, 0, std::vector<int64_t>{limit}, staging);
  return ledger;
}
MemoryRequest Put(uint32_t client, uint64_t n, int64_t bytes, uint32_t device = 0, uint32_t host = 0) {
  MemoryRequest request;
  request.id = Id(client, n);
  request.client = client;
  request.hosts = {host};
  request.MakeOne(request.id, bytes, device);
  return request;
}
MemoryRequest Run(uint32_t client, uint64_t n, std::vector<uint64_t> arguments, int64_t made, int64_t scratch = 0,
                  std::vector<uint64_t> donated = {}) {
  MemoryRequest request;
  request.id = Id(client, n);
  request.client = client;
  request.is_run = true;
  request.hosts = {0};
  for (const uint64_t argument : arguments) request.arguments.push_back(Id(client, argument));
  for (const uint64_t argument : donated) request.donated.push_back(Id(client, argument));
  if (made > 0) request.MakeOne(Id(client, n + 1), made, 0);
  if (scratch > 0) request.scratch.push_back({0, scratch});
  return request;
}
bool Goes(MemoryLedger& ledger, const MemoryRequest& request, uint64_t now = 0) {
  if (ledger.Ask(request, now) != Answer::kFits) return false;
  ledger.Start(request);
  return true;
}
void FreeOne(MemoryLedger& ledger, uint64_t id) { ledger.Free(0, std::vector<uint64_t>{id}); }

TEST(SumsThatNoNumberHoldsNeverFit) {
  MemoryLedger ledger = OneDevice(100);
  MemoryRequest huge = Run(1, 10, {}, 0, INT64_MAX);
  for (uint64_t k = 0; k < 65'536; ++k) huge.MakeOne(Id(1, 100 + k), int64_t{1} << 47, 0);
  huge.scratch.push_back({0, INT64_MAX});
  EXPECT(ledger.Ask(huge, 0) == Answer::kNever);
  EXPECT(Goes(ledger, Put(1, 1, 60)));
}

TEST(WhatDoesNotFitWaitsUntilMemoryIsFreed) {
  MemoryLedger ledger = OneDevice(100);
  EXPECT(Goes(ledger, Put(1, 1, 60)));
  EXPECT(ledger.Ask(Put(2, 1, 60), 0) == Answer::kWait);
  EXPECT(Goes(ledger, Put(3, 1, 40)));  // smaller ones go on meanwhile
  EXPECT(!ledger.TakeReady());
  FreeOne(ledger, Id(3, 1));
  EXPECT(!ledger.TakeReady());
  FreeOne(ledger, Id(1, 1));
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(2));
  EXPECT(Goes(ledger, Put(2, 1, 60)));
  EXPECT(!ledger.has_waiters());
  EXPECT_EQ(ledger.books(0).used, 60);
}

TEST(WhatCanNeverFitIsSaidAtOnce) {
  MemoryLedger ledger = OneDevice(100);
  EXPECT(ledger.Ask(Put(1, 1, 101), 0) == Answer::kNever);
  EXPECT(Goes(ledger, Put(1, 2, 60)));
  EXPECT(ledger.Ask(Run(1, 10, {2}, 41), 0) == Answer::kNever);
  EXPECT(ledger.Ask(Run(1, 10, {2}, 20, 21), 0) == Answer::kNever);
  EXPECT(ledger.Ask(Run(1, 10, {2}, 80, 20, {2}), 0) == Answer::kFits);  // in place of what it gives up
  EXPECT(ledger.Ask(Put(1, 30, 0), 0) == Answer::kFits);
}

TEST(ScratchIsCountedWhileARunIsInFlight) {
  MemoryLedger ledger = OneDevice(100);
  EXPECT(Goes(ledger, Run(1, 10, {}, 10, 50)));
  EXPECT_EQ(ledger.books(0).running, 50);
  EXPECT(ledger.Ask(Run(1, 20, {}, 10, 50), 0) == Answer::kWait);
  ledger.Tick(1000);
  EXPECT(!ledger.has_orders());  // the run ends by itself: nothing is spilled for it
  ledger.PartDone(Id(1, 10), 0);
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(1));
  EXPECT(Goes(ledger, Run(1, 20, {}, 10, 50)));
  EXPECT_EQ(ledger.books(0).used, 20);
}

TEST(TheOldestGetsRoomFromBuffersItDoesNotName) {
  MemoryLedger ledger = OneDevice(100);
  EXPECT(Goes(ledger, Put(1, 1, 40)));
  EXPECT(Goes(ledger, Put(2, 1, 40)));
  EXPECT(ledger.Ask(Run(1, 10, {1}, 30), 1000) == Answer::kWait);
  ledger.Tick(1100);
  EXPECT(!ledger.has_orders());  // it has not waited long enough
  ledger.Tick(1200);
  auto orders = ledger.TakeOrders();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT(!orders[0].restore && orders[0].buffers == std::vector<uint64_t>{Id(2, 1)});
  EXPECT(ledger.Ask(Put(3, 1, 10), 1200) == Answer::kWait);  // the room is spoken for
  EXPECT(!ledger.TakeReady());
  ledger.Spilled(0, orders[0].buffers);
  EXPECT_EQ(ledger.staged_bytes(0), 40);
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(1));
  EXPECT(Goes(ledger, Run(1, 10, {1}, 30), 1200));
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(3));
  EXPECT(Goes(ledger, Put(3, 1, 10), 1200));
  // Who names the spilled buffer gets it back first.
  EXPECT(ledger.Ask(Run(2, 10, {1}, 5), 1300) == Answer::kWait);
  FreeOne(ledger, Id(1, 1));
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(2));
  EXPECT(ledger.Ask(Run(2, 10, {1}, 5), 1300) == Answer::kFits);
  orders = ledger.TakeOrders();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT(orders[0].restore && orders[0].buffers == std::vector<uint64_t>{Id(2, 1)});
  EXPECT_EQ(ledger.staged_bytes(0), 0);
  EXPECT_EQ(ledger.books(0).used, 85);
}

TEST(WaitingClientsBuffersGoBeforeOthersAndOwnOnesLast) {
  MemoryLedger ledger = OneDevice(300'000, 1 << 30);
  EXPECT(Goes(ledger, Put(1, 1, 100'000)));
  EXPECT(Goes(ledger, Put(2, 1, 100'000)));
  EXPECT(Goes(ledger, Put(3, 1, 100'000)));
  EXPECT(ledger.Ask(Put(1, 2, 300'000), 0) == Answer::kWait);
  EXPECT(ledger.Ask(Put(3, 2, 50'000), 1) == Answer::kWait);
  ledger.Tick(200);
  auto orders = ledger.TakeOrders();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT(orders[0].buffers == (std::vector<uint64_t>{Id(3, 1), Id(2, 1), Id(1, 1)}));
}

TEST(WhatIsHeldForItsTurnStaysInPlace) {
  MemoryLedger ledger = OneDevice(100);
  EXPECT(Goes(ledger, Put(1, 1, 60)));
  const MemoryRequest run = Run(1, 10, {1}, 20, 10, {1});
  ASSERT(ledger.Ask(run, 0) == Answer::kFits);
  ledger.Hold(run);
  EXPECT(ledger.IsHeld(1, run.id));
  EXPECT(ledger.Ask(Put(2, 1, 60), 0) == Answer::kWait);
  ledger.Tick(1000);
  EXPECT(!ledger.has_orders());
  ledger.Cancel(1);  // as if its host were lost
  EXPECT_EQ(ledger.books(0).used, 60);
  EXPECT_EQ(ledger.books(0).running, 0);
  ASSERT(ledger.Ask(run, 0) == Answer::kFits);
  ledger.Hold(run);
  EXPECT(ledger.StartHeld(1, run.id));
  EXPECT_EQ(ledger.books(0).used, 20);
  EXPECT_EQ(ledger.books(0).running, 10);
}

TEST(WithoutRoomForSpillsOnlyOwnBuffersAreAReasonToRefuse) {
  MemoryLedger ledger = OneDevice(100, 0);
  EXPECT(Goes(ledger, Put(1, 1, 60)));
  EXPECT(ledger.Ask(Put(2, 1, 60), 0) == Answer::kWait);
  ledger.Tick(5000);
  EXPECT(!ledger.TakeReady());  // client 1 may still free its buffer
  EXPECT(ledger.Ask(Put(1, 2, 60), 5000) == Answer::kWait);
  ledger.Tick(5999);
  EXPECT(!ledger.TakeReady());
  ledger.Tick(6000);
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(1));
  EXPECT(ledger.Ask(Put(1, 2, 60), 6000) == Answer::kFits);  // so that its worker refuses it
  EXPECT_EQ(ledger.books(0).used, 120);
  FreeOne(ledger, Id(1, 2));  // which it has
  const MemoryRequest run = Run(1, 10, {1}, 30, 11);
  EXPECT(ledger.Ask(run, 6000) == Answer::kNever);
  EXPECT(Goes(ledger, Put(1, 3, 20)));
  const MemoryRequest later = Run(1, 20, {1}, 30, 10);
  EXPECT(ledger.Ask(later, 6000) == Answer::kWait);
  ledger.Tick(7000);
  EXPECT(Goes(ledger, later, 7000));
  EXPECT_EQ(ledger.books(0).used, 110);
  ledger.PartDone(later.id, 0, false);
  EXPECT_EQ(ledger.books(0).used, 80);
}

TEST(AClientOrHostThatIsGoneMakesRoom) {
  MemoryLedger ledger;
  ledger.AddHost(0, 0, std::vector<int64_t>{100, 100}, 0);
  ledger.AddHost(1, 2, std::vector<int64_t>{0}, 0);
  EXPECT(!ledger.limited(1));
  EXPECT(Goes(ledger, Put(1, 1, 60, 1)));
  EXPECT(Goes(ledger, Put(1, 2, int64_t{1} << 50, 2, 1)));
  EXPECT(ledger.Ask(Put(2, 1, 60, 1), 0) == Answer::kWait);
  ledger.DropClient(1);
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(2));
  EXPECT(ledger.Ask(Put(3, 1, 200, 1), 0) == Answer::kNever);
  ledger.RemoveHost(0);
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(2));  // to hear that its host is lost
  EXPECT_EQ(ledger.books(1).used, 0);
}

TEST(PartsOnSeveralHostsAreEnteredTogether) {
  MemoryLedger ledger;
  ledger.AddHost(0, 0, std::vector<int64_t>{100, 100}, 0);
  ledger.AddHost(1, 2, std::vector<int64_t>{100, 100}, 0);
  MemoryRequest request;
  request.id = Id(1, 1);
  request.client = 1;
  request.hosts = {0, 1};
  request.devices = {0, 1, 2, 3};
  request.made = {{Id(1, 2), 70, 0, 4}};
  EXPECT(Goes(ledger, request));
  for (uint32_t d = 0; d < 4; ++d) EXPECT_EQ(ledger.books(d).used, 70);
  request.client = 2;
  request.id = Id(2, 1);
  request.made = {{Id(2, 2), 70, 0, 4}};
  EXPECT(ledger.Ask(request, 0) == Answer::kWait);
  ledger.Free(0, std::vector<uint64_t>{Id(1, 2)});
  EXPECT(!ledger.TakeReady());  // one host is not enough
  ledger.Free(1, std::vector<uint64_t>{Id(1, 2)});
  EXPECT(ledger.TakeReady() == std::optional<uint32_t>(2));
}

// A worker's side of the books, strict: it notes every breach of what the ledger promises.
struct Worker {
  explicit Worker(std::vector<int64_t> device_limits) : limits(std::move(device_limits)), used(limits.size(), 0) {}
  struct Buffer {
    int64_t bytes;
    uint32_t device;
    bool staged = false;
  };
  std::vector<int64_t> limits, used;
  std::map<uint64_t, Buffer> buffers;
  std::string breach;

  void Check(bool fine, const std::string& what) {
    if (!fine && breach.empty()) breach = what;
  }
  void Start(const MemoryRequest& request) {
    std::vector<int64_t> need(limits.size(), 0);
    for (const auto& made : request.made) need[request.devices[made.first_device]] += made.bytes;
    for (const uint64_t donated : std::set<uint64_t>(request.donated.begin(), request.donated.end())) {
      need[buffers.at(donated).device] -= buffers.at(donated).bytes;
    }
    for (int64_t& bytes : need) bytes = std::max<int64_t>(bytes, 0);
    for (const auto& scratch : request.scratch) need[scratch.device] += scratch.bytes;
    for (size_t d = 0; d < need.size(); ++d) {
      Check(need[d] == 0 || used[d] + need[d] <= limits[d], "over the limit of device " + std::to_string(d));
    }
    for (const uint64_t argument : request.arguments) {
      Check(buffers.contains(argument) && !buffers.at(argument).staged, "an argument is not on its device");
    }
    for (const uint64_t donated : request.donated) Free(donated);
    for (const auto& made : request.made) {
      const uint32_t device = request.devices[made.first_device];
      used[device] += made.bytes;
      buffers[made.buffer] = {made.bytes, device};
    }
  }
  void Free(uint64_t id) {
    auto node = buffers.extract(id);
    if (!node.empty() && !node.mapped().staged) used[node.mapped().device] -= node.mapped().bytes;
  }
  void Restore(uint64_t id) {
    Check(buffers.contains(id) && buffers.at(id).staged, "told to restore what is not spilled");
    buffers.at(id).staged = false;
    used[buffers.at(id).device] += buffers.at(id).bytes;
  }
  void Spill(uint64_t id) {
    auto it = buffers.find(id);
    if (it == buffers.end() || it->second.staged) return;
    it->second.staged = true;
    used[it->second.device] -= it->second.bytes;
  }
};

// Random clients that put, run, give up and free; together they need several times the memory. Whatever the order in
// which runs end and spills are answered: no device is ever over its limit, no run meets an argument that is not
// there, and everybody comes to an end.
TEST(EverybodyFinishesAndNoDeviceIsEverOverItsLimit) {
  uint64_t spills = 0, waits = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    const size_t device_count = 1 + static_cast<size_t>(below(3));
    const int64_t limit = 1000;
    const std::vector<int64_t> limits(device_count, limit);
    MemoryLedger ledger({.spill_after_ms = static_cast<uint64_t>(below(50)), .refuse_after_ms = 1000});
    ledger.AddHost(0, 0, limits, 1 << 30);
    Worker worker(limits);

    struct Client {
      uint32_t index = 0;
      uint32_t device = 0;
      int steps_left = 60;
      uint64_t next_id = 1;
      std::vector<uint64_t> buffers;
      std::optional<MemoryRequest> asking;
      bool held = false;
    };
    std::vector<Client> clients;
    for (uint32_t i = 1; i <= 8; ++i) clients.emplace_back().index = i;
    for (Client& client : clients) client.device = static_cast<uint32_t>(below(static_cast<int64_t>(device_count)));
    std::deque<uint64_t> in_flight;              // runs
    std::vector<std::vector<uint64_t>> leaving;  // spills not answered yet
    uint64_t now = 0;

    auto obey = [&] {
      for (const auto& order : ledger.TakeOrders()) {
        if (!order.restore) {
          leaving.push_back(order.buffers);
        } else {
          for (const uint64_t id : order.buffers) worker.Restore(id);
        }
      }
    };
    auto start = [&](Client& client) {
      worker.Start(*client.asking);
      if (!client.asking->scratch.empty()) in_flight.push_back(client.asking->id);
      for (const uint64_t donated : client.asking->donated) std::erase(client.buffers, donated);
      for (const auto& made : client.asking->made) client.buffers.push_back(made.buffer);
      client.asking.reset();
      --client.steps_left;
    };
    auto ask = [&](Client& client) {
      const Answer answer = ledger.Ask(*client.asking, now);
      obey();
      if (answer == Answer::kFits) {
        if (below(3) == 0) {
          ledger.Hold(*client.asking);
          client.held = true;
        } else {
          ledger.Start(*client.asking);
          start(client);
        }
      } else if (answer == Answer::kNever) {
        worker.Check(false, "something was too large, though all is made to fit alone");
      }
    };
    auto settle = [&] {
      while (std::optional<uint32_t> ready = ledger.TakeReady()) ask(clients[*ready - 1]);
    };
    auto invent = [&](Client& client) {
      MemoryRequest request;
      request.client = client.index;
      request.hosts = {0};
      int64_t room = limit;
      if (!client.buffers.empty() && below(3) > 0) {
        request.id = Id(client.index, client.next_id++);
        for (int i = 0; i < 3; ++i) {
          const uint64_t argument =
              client.buffers[static_cast<size_t>(below(static_cast<int64_t>(client.buffers.size())))];
          const int64_t bytes = worker.buffers.at(argument).bytes;
          if (bytes > room - 100) continue;
          if (std::count(request.arguments.begin(), request.arguments.end(), argument) == 0) room -= bytes;
          request.arguments.push_back(argument);
          if (below(3) == 0) request.donated.push_back(argument);
        }
        request.scratch.push_back({client.device, 1 + below(room / 2)});
        request.MakeOne(Id(client.index, client.next_id++), below(room / 2), client.device);
      } else {
        request.id = Id(client.index, client.next_id++);
        request.MakeOne(request.id, below(limit / 2), client.device);
      }
      client.asking = std::move(request);
    };

    int rounds = 0;
    auto unfinished = [&] {
      return std::any_of(clients.begin(), clients.end(), [](const Client& c) { return c.steps_left > 0; });
    };
    while (unfinished() && worker.breach.empty() && ++rounds < 200'000) {
      now += static_cast<uint64_t>(below(20));
      switch (below(5)) {
        case 0:
        case 1: {
          Client& client = clients[static_cast<size_t>(below(static_cast<int64_t>(clients.size())))];
          if (client.held) {
            worker.Check(ledger.StartHeld(client.index, client.asking->id), "what was held is gone");
            client.held = false;
            start(client);
          } else if (!client.asking && client.steps_left > 0) {
            invent(client);
            ask(client);
          }
          break;
        }
        case 2: {
          Client& client = clients[static_cast<size_t>(below(static_cast<int64_t>(clients.size())))];
          // A client that has finished keeps what it has: idle buffers are in everybody's way.
          if (client.buffers.size() < 4 || client.asking || client.steps_left == 0) break;
          const uint64_t id = client.buffers[static_cast<size_t>(below(static_cast<int64_t>(client.buffers.size())))];
          std::erase(client.buffers, id);
          worker.Free(id);
          FreeOne(ledger, id);
          break;
        }
        case 3:
          if (!in_flight.empty()) {
            ledger.PartDone(in_flight.front(), 0);
            in_flight.pop_front();
          }
          break;
        default:
          if (!leaving.empty()) {
            for (const uint64_t id : leaving.back()) worker.Spill(id);
            ledger.Spilled(0, leaving.back());
            leaving.pop_back();
          }
          ledger.Tick(now);
          obey();
      }
      settle();
      for (uint32_t d = 0; d < device_count; ++d) {
        const auto books = ledger.books(d);
        worker.Check(books.used + books.running <= limit, "the books are over the limit");
        worker.Check(worker.used[d] <= books.used, "the worker holds more than the books say");
      }
    }
    if (!worker.breach.empty() || unfinished()) {
      testing::Fail(__FILE__, __LINE__,
                    "seed " + std::to_string(seed) + " after " + std::to_string(rounds) +
                        " rounds: " + (worker.breach.empty() ? std::string("somebody never finished") : worker.breach));
    }
    spills += ledger.spills();
    waits += ledger.waits();
  }
  EXPECT(spills > 1000 && waits > 1000);  // it was tight
}

}  // namespace
}  // namespace pathways::controller
