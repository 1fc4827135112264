// RunTimes: what is kept of a program's runs, and when a computation is said to have begun.
#include "csrc/worker/run_times.h"

#include <utility>

#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

constexpr uint32_t kFirstDevice = 4;

wire::PlanStep Step(wire::StepKind kind, uint32_t node, std::vector<uint32_t> arguments,
                    std::vector<uint32_t> results) {
  wire::PlanStep step;
  step.kind = kind;
  step.node = node;
  step.gang = node;
  step.function = 9;
  step.arguments = std::move(arguments);
  step.results = std::move(results);
  return step;
}

// "f" of the argument, and "g" of f's result and of what another host sends; on two devices.
plan::Plan TwoNodes() {
  wire::RegisterPlan plan;
  plan.name = "p";
  plan.channels = 2;
  plan.nodes = {"f", "g", "from elsewhere"};
  plan.slots.assign(4, {{DType::kF32, {2}}, {0, 1}, {kFirstDevice, kFirstDevice + 1}});
  plan.inputs = {{0, 2}};
  plan.outputs = {{3, 2}};
  wire::PlanStep first = Step(wire::StepKind::kReceive, 2, {}, {1}), second = first;
  first.pieces = {{0, 1, {}}};
  second.shard = 1;
  second.pieces = {{1, 1, {}}};
  plan.steps = {Step(wire::StepKind::kExecute, 0, {0}, {2}), first, second,
                Step(wire::StepKind::kExecute, 1, {2, 1}, {3})};
  Result<plan::Plan> made = plan::Plan::Make(std::move(plan), kFirstDevice, 2);
  EXPECT_OK(made.status());
  return *std::move(made);
}
constexpr size_t kF = 0, kG = 3, kComputations = 4;

using Spans = std::vector<std::pair<int64_t, int64_t>>;

Spans Of(const wire::TimedRun& run, uint32_t device, uint32_t node) {
  Spans spans;
  for (const wire::TimedComputation& one : run.computations) {
    if (one.device == device && one.node == node) spans.emplace_back(one.start_ns, one.end_ns);
  }
  return spans;
}

void Note(std::deque<RunTimes::Moment>& moments, uint32_t slot, uint32_t device, int64_t at) {
  RunTimes::Moment& moment = moments.emplace_back();
  moment.slot = slot;
  moment.device = device;
  moment.at_ns = at;
}

TEST(AComputationBeginsWhenTheLastThingThatItWaitsForIsOver) {
  const plan::Plan plan = TwoNodes();
  RunTimes times(kComputations);
  const auto run = times.Begin(7);
  run->Add(kF, 0, 100)->End(20, 300);   // it waits to be enqueued
  run->Add(kF, 1, 101)->End(150, 310);  // for what was computed there before
  Note(run->arrivals, 1, 0, 950);
  Note(run->arrivals, 1, 0, 900);   // for a value from elsewhere
  Note(run->arrivals, 1, 1, 5000);  // noted late
  run->Add(kG, 0, 110)->End(300, 1000);
  run->Add(kG, 1, 111)->End(310, 1100);
  const wire::Times all = times.Collect(plan, kFirstDevice);
  EXPECT_EQ(all.nodes[1], std::string("g"));
  ASSERT_EQ(all.runs.size(), 1u);
  const wire::TimedRun& said = all.runs[0];
  EXPECT_EQ(said.run, uint64_t{7});
  EXPECT_EQ(said.missing, 0u);
  EXPECT(Of(said, kFirstDevice, 0) == Spans({{100, 300}}));
  EXPECT(Of(said, kFirstDevice + 1, 0) == Spans({{150, 310}}));
  EXPECT(Of(said, kFirstDevice, 1) == Spans({{900, 1000}}));
  EXPECT(Of(said, kFirstDevice + 1, 1) == Spans({{310, 1100}}));
}

TEST(AComputationHasEndedWhenItsResultCouldBeTaken) {
  const plan::Plan plan = TwoNodes();
  RunTimes times(kComputations);
  const auto run = times.Begin(7);
  run->Add(kF, 0, 100)->End(0, 800);  // noted late
  Note(run->departures, 2, 0, 400);
  Note(run->departures, 2, 0, 300);
  Note(run->departures, 2, 0, 0);  // not yet
  run->Add(kG, 0, 110)->End(800, 1000);
  run->Add(kF, 1, 500)->End(0, 600);
  Note(run->departures, 2, 1, 400);  // of what was there before
  const wire::TimedRun said = times.Collect(plan, kFirstDevice).runs[0];
  EXPECT(Of(said, kFirstDevice, 0) == Spans({{100, 300}}));
  EXPECT(Of(said, kFirstDevice, 1) == Spans({{300, 1000}}));
  EXPECT(Of(said, kFirstDevice + 1, 0) == Spans({{500, 500}}));
}

TEST(AComputationHasEndedBeforeWhatReadsItsResult) {
  const plan::Plan plan = TwoNodes();
  RunTimes times(kComputations);
  const auto run = times.Begin(7);
  run->Add(kF, 0, 100)->End(450, 500);  // its thread was late, and the next one was told of first
  run->Add(kG, 0, 110)->End(20, 450);
  const wire::TimedRun said = times.Collect(plan, kFirstDevice).runs[0];
  EXPECT(Of(said, kFirstDevice, 0) == Spans({{450, 450}}));
  EXPECT(Of(said, kFirstDevice, 1) == Spans({{450, 450}}));
}

TEST(ComputationsOfADeviceDoNotOverlap) {
  const plan::Plan plan = TwoNodes();
  RunTimes times(kComputations);
  const auto run = times.Begin(7);
  run->Add(kF, 0, 100)->End(0, 400);  // side by side, as CPU devices may
  run->Add(kG, 0, 110)->End(0, 450);
  const wire::TimedRun said = times.Collect(plan, kFirstDevice).runs[0];
  EXPECT(Of(said, kFirstDevice, 0) == Spans({{100, 400}}));
  EXPECT(Of(said, kFirstDevice, 1) == Spans({{400, 450}}));
}

TEST(WhatHasNotEndedIsMissing) {
  const plan::Plan plan = TwoNodes();
  RunTimes times(kComputations);
  const auto run = times.Begin(7);
  run->Add(kF, 0, 100)->End(0, 200);
  run->Add(kF, 1, 100);
  EXPECT_EQ(times.Collect(plan, kFirstDevice).runs[0].missing, 3u);  // one has not ended, two were not enqueued
  for (int i = 0; i < 2; ++i) EXPECT(run->Add(kG, 0, 100) != nullptr);
  EXPECT(run->Add(kG, 0, 100) == nullptr);
}

TEST(TheLastRunsAreKept) {
  const plan::Plan plan = TwoNodes();
  RunTimes times(kComputations);
  const auto busy = times.Begin(1);
  RunTimes::Span* const late = busy->Add(kF, 0, 100);
  busy->writers = 1;
  for (uint64_t run = 2; run <= wire::kMaxTimedRuns + 2; ++run) {
    const auto next = times.Begin(run);
    EXPECT(next != busy);  // a callback will still write to it
    next->Add(kF, 0, 100 * static_cast<int64_t>(run))->End(0, 100 * static_cast<int64_t>(run) + 1);
  }
  late->End(0, 9999);
  busy->Written();
  const wire::Times all = times.Collect(plan, kFirstDevice);
  ASSERT_EQ(all.runs.size(), wire::kMaxTimedRuns);
  for (size_t i = 0; i < all.runs.size(); ++i) {
    EXPECT_EQ(all.runs[i].run, i + 3);
    EXPECT_EQ(all.runs[i].computations.size(), 1u);
    EXPECT_EQ(all.runs[i].computations[0].start_ns, 100 * static_cast<int64_t>(i + 3));
  }
}

TEST(TheMemoryOfARunIsUsedAgain) {
  const plan::Plan plan = TwoNodes();
  RunTimes times(kComputations);
  const RunTimes::Run* const first = times.Begin(1).get();
  for (uint64_t run = 2; run <= wire::kMaxTimedRuns; ++run) times.Begin(run);
  const auto again = times.Begin(9);
  EXPECT(again.get() == first);
  EXPECT_EQ(times.Collect(plan, kFirstDevice).runs.back().missing, 4u);
}

TEST(OneReadingOfTheClockServesTwo) {
  RunTimes::Run run(1);
  run.read_ns = 5;
  EXPECT_EQ(run.NowNs(), int64_t{5});
  run.read_ns = 0;
  const int64_t before = SteadyNs();
  EXPECT(run.NowNs() >= before);
}

}  // namespace
}  // namespace pathways::worker
