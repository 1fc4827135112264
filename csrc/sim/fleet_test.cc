// Devices alone: queues in order, gangs that meet, circles that are found.
#include "csrc/sim/fleet.h"

#include "csrc/testing/test.h"

namespace pathways::sim {
namespace {

struct Part : RunPart {
  int done = 0;
  int64_t last = 0;
  int64_t busy = 0;
  Status error;
  void DeviceDone(uint32_t, int64_t at, int64_t busy_ns, const Status& status) override {
    ++done;
    last = at;
    busy += busy_ns;
    if (error.ok()) error = status;
  }
};

struct Devices {
  explicit Devices(uint32_t count) { fleet.AddDevices(count); }
  using Values = std::vector<std::shared_ptr<Value>>;

  Launch MakeLaunch(uint64_t run, int64_t cost, std::vector<uint32_t> gang) {
    Launch launch;
    launch.id = {run, 1, 0};
    launch.what = std::make_shared<const std::string>("function 'f" + std::to_string(run) + "'");
    launch.client = static_cast<uint32_t>(run);
    launch.program = launch.node = trace.Name("f");
    launch.cost_ns = cost;
    if (gang.size() > 1) launch.devices = std::make_shared<const std::vector<uint32_t>>(std::move(gang));
    return launch;
  }
  // Puts run `run` into the queues of `local`, where its gang is `gang`.
  Values Enqueue(uint64_t run, int64_t cost, const std::vector<uint32_t>& gang, const std::vector<uint32_t>& local,
                 const std::shared_ptr<Part>& part, const Fleet::Inputs& inputs = {}) {
    Values out;
    fleet.Enqueue(MakeLaunch(run, cost, gang), local, std::vector<Fleet::Inputs>(local.size(), inputs), part, &out);
    return out;
  }
  void RunAll() {
    while (timeline.RunNext()) {
    }
  }
  Timeline timeline;
  Trace trace;
  Fleet fleet{&timeline, &trace};
};

TEST(ADeviceComputesInOrderAndOneAfterTheOther) {
  Devices d(1);
  auto first = std::make_shared<Part>(), second = std::make_shared<Part>();
  d.Enqueue(1, 100, {0}, {0}, first);
  d.Enqueue(2, 50, {0}, {0}, second);
  EXPECT_EQ(d.fleet.queued(0), 2u);
  d.RunAll();
  EXPECT_EQ(first->last, 100);
  EXPECT_EQ(second->last, 150);
  ASSERT_EQ(d.trace.intervals().size(), 2u);
  EXPECT_EQ(d.trace.intervals()[1].start, 100);
  EXPECT_EQ(d.trace.intervals()[1].end, 150);
}

TEST(AGangStartsWhenItsLastDeviceIsFree) {
  Devices d(2);
  auto busy = std::make_shared<Part>(), gang = std::make_shared<Part>();
  d.Enqueue(1, 70, {1}, {1}, busy);
  d.Enqueue(2, 10, {0, 1}, {0}, gang);
  EXPECT_EQ(d.fleet.waiting_gangs(), 1u);
  d.Enqueue(2, 10, {0, 1}, {1}, gang);
  d.RunAll();
  EXPECT_EQ(gang->done, 2);
  EXPECT_EQ(gang->last, 80);
  EXPECT_EQ(d.fleet.waiting_gangs(), 0u);
  for (const Interval& interval : d.trace.intervals()) {
    if (interval.run != 2) continue;
    EXPECT_EQ(interval.start, 70);
    EXPECT_EQ(interval.arrived, interval.device == 0 ? 0 : 70);
  }
}

TEST(AComputationWaitsForItsInputAndHoldsWhatIsBehindIt) {
  Devices d(1);
  auto input = std::make_shared<Value>();
  auto first = std::make_shared<Part>(), second = std::make_shared<Part>();
  d.Enqueue(1, 10, {0}, {0}, first, {input});
  d.Enqueue(2, 10, {0}, {0}, second);
  d.timeline.At(500, [&](int64_t at) { input->Settle(at); });
  d.RunAll();
  EXPECT_EQ(first->last, 510);
  EXPECT_EQ(second->last, 520);
}

TEST(AnErrorTravelsWithoutTakingTime) {
  Devices d(2);
  auto bad = Value::Settled(0, InvalidArgument("root cause"));
  auto part = std::make_shared<Part>(), dependent = std::make_shared<Part>();
  // Only one device's input failed; the gang fails on both.
  auto a = d.Enqueue(1, 100, {0, 1}, {0}, part, {bad});
  auto b = d.Enqueue(1, 100, {0, 1}, {1}, part);
  d.Enqueue(2, 100, {1}, {1}, dependent, {b[0]});
  d.RunAll();
  EXPECT_EQ(part->done, 2);
  EXPECT_HAS(part->error.ToString(), "root cause");
  EXPECT_HAS(dependent->error.ToString(), "root cause");
  EXPECT_EQ(d.timeline.now(), 0);
  EXPECT(d.trace.intervals().empty());
}

TEST(TwoGangsInDifferentOrdersAreADeadlockThatNamesThem) {
  Devices d(2);
  auto one = std::make_shared<Part>(), two = std::make_shared<Part>();
  d.Enqueue(1, 10, {0, 1}, {0}, one);
  d.Enqueue(2, 10, {0, 1}, {1}, two);
  d.Enqueue(1, 10, {0, 1}, {1}, one);
  EXPECT(d.fleet.FindDeadlock().code() == Code::kAborted);  // what is still to come queues behind these
  d.Enqueue(2, 10, {0, 1}, {0}, two);
  d.RunAll();
  EXPECT_EQ(one->done + two->done, 0);
  const Status found = d.fleet.FindDeadlock();
  EXPECT(found.code() == Code::kAborted);
  EXPECT_HAS(found.ToString(), "client 1's function 'f1' (run 1) holds device 0 and waits for device 1");
  EXPECT_HAS(found.ToString(), "client 2's function 'f2' (run 2) holds device 1 and waits for device 0");

  EXPECT(d.fleet.BreakDeadlock().code() == Code::kAborted);
  d.RunAll();
  EXPECT_EQ(one->done, 2);
  EXPECT_EQ(two->done, 2);
  EXPECT_HAS(one->error.ToString(), "deadlock");
  EXPECT_OK(d.fleet.FindDeadlock());
  EXPECT_EQ(d.fleet.queued(0) + d.fleet.queued(1), 0u);
}

TEST(ACircleOfThreeIsFoundAndAPlainWaitIsNone) {
  Devices d(3);
  auto part = std::make_shared<Part>();
  d.Enqueue(1, 10, {0, 1}, {0}, part);
  d.Enqueue(2, 10, {1, 2}, {1}, part);
  EXPECT_OK(d.fleet.FindDeadlock());  // 1 waits for 2, and 2 for nobody
  d.Enqueue(3, 10, {2, 0}, {2}, part);
  const Status found = d.fleet.FindDeadlock();
  EXPECT(found.code() == Code::kAborted);
  for (const char* name : {"'f1'", "'f2'", "'f3'"}) EXPECT_HAS(found.ToString(), name);
}

TEST(ALostDeviceFailsItsGangsOnAllOthersAndTheseGoOn) {
  Devices d(3);
  auto running = std::make_shared<Part>(), later = std::make_shared<Part>(), after = std::make_shared<Part>();
  d.Enqueue(1, 100, {0, 1}, {0, 1}, running);
  d.Enqueue(2, 100, {0, 1}, {0, 1}, later);
  d.timeline.At(50, [&](int64_t) { d.fleet.LoseDevices(1, 1, Unavailable("host 'b' is lost")); });
  d.RunAll();
  EXPECT_EQ(running->done, 1);  // the lost one reports nothing
  EXPECT_HAS(running->error.ToString(), "host 'b' is lost");
  EXPECT_EQ(later->done, 1);
  EXPECT_HAS(later->error.ToString(), "host 'b' is lost");
  // A gang that comes late with a lost member fails, too; one without is fine.
  auto late = std::make_shared<Part>();
  d.Enqueue(3, 10, {0, 1, 2}, {0, 2}, late);
  d.Enqueue(4, 10, {0, 2}, {0, 2}, after);
  d.RunAll();
  EXPECT_EQ(late->done, 2);
  EXPECT_HAS(late->error.ToString(), "host 'b' is lost");
  EXPECT_EQ(after->done, 2);
  EXPECT_OK(after->error);
  EXPECT_EQ(d.fleet.waiting_gangs(), 0u);
}

TEST(AHostThatCannotLaunchFailsTheGangEverywhere) {
  Devices d(2);
  auto part = std::make_shared<Part>(), next = std::make_shared<Part>();
  d.Enqueue(1, 10, {0, 1}, {0}, part);
  d.fleet.FailGang(d.MakeLaunch(1, 10, {0, 1}), 1, ResourceExhausted("no memory"));
  d.Enqueue(2, 10, {0, 1}, {0, 1}, next);
  d.RunAll();
  EXPECT_EQ(part->done, 1);
  EXPECT_HAS(part->error.ToString(), "no memory");
  EXPECT_EQ(next->done, 2);
  EXPECT_OK(next->error);
}

TEST(ALongChainOfConsequencesIsNoRecursion) {
  Devices d(2);
  auto part = std::make_shared<Part>();
  auto root = std::make_shared<Value>();
  std::shared_ptr<Value> last = root;
  constexpr int kLength = 200'000;
  for (int i = 0; i < kLength; ++i) {
    const uint32_t device = static_cast<uint32_t>(i % 2);
    last = d.Enqueue(static_cast<uint64_t>(i + 1), 1, {device}, {device}, part, {last})[0];
  }
  root->Settle(0, InvalidArgument("root cause"));
  d.RunAll();
  EXPECT_EQ(part->done, kLength);
  EXPECT_HAS(last->error().ToString(), "root cause");
}

}  // namespace
}  // namespace pathways::sim
