// What runs in place leave for each other: told in the first message, and afterwards only where it differs.
#include "csrc/plan/places.h"

#include "csrc/testing/test.h"

namespace pathways::plan {
namespace {

constexpr uint32_t kNone = wire::kNoPlace;

// Three arguments (a weight that is overwritten, a table that is only read, the batch) and two results (the weight, the
// loss). The weight lies in place 0, the table in place 1.
Places Training() { return Places({1, 0, 0}, 2); }

wire::RunInPlace First(uint64_t run = 100) {
  wire::RunInPlace message;
  message.run = run;
  message.program = 7;
  message.argument_places = {0, 1, kNone};
  message.result_places = {0, kNone};
  message.places = {0, 1};
  message.before = {10, 20};
  message.after = {11, 20};
  message.arguments = {30};
  message.first_output = 40;
  message.output_count = 1;
  message.donated = {0};
  return message;
}

wire::RunInPlace Next(uint64_t run, uint64_t previous) {
  wire::RunInPlace message;
  message.run = run;
  message.program = 7;
  message.previous = previous;
  message.arguments = {31};
  message.first_output = 50;
  message.output_count = 1;
  return message;
}

FullRun Take(Places& places, const wire::RunInPlace& message) {
  FullRun full;
  EXPECT(places.Check(message).ok());
  places.Apply(message);
  places.Spell(message, full);
  return full;
}

using Ids = std::vector<uint64_t>;
using Positions = std::vector<uint32_t>;

TEST(TheFirstRunSaysEverythingAndTheNextOnesNothing) {
  Places places = Training();
  const FullRun first = Take(places, First());
  EXPECT(first.run.arguments == (Ids{10, 20, 30}));
  EXPECT(first.results == (Ids{11, 40}));
  EXPECT(first.run.donated == Positions{0});
  const FullRun second = Take(places, Next(101, 100));
  EXPECT(second.run.arguments == (Ids{11, 20, 31}));  // what was made there is read, and made again
  EXPECT(second.results == (Ids{11, 50}));
  EXPECT(second.run.donated == Positions{0});
  EXPECT(places.is_overwritten(0) && !places.is_written(1));
}

TEST(WhatSomebodyElseHoldsIsReadAndNotReplaced) {
  Places places = Training();
  Take(places, First());
  wire::RunInPlace message = Next(101, 100);
  message.places = {0};
  message.before = {11};
  message.after = {12};
  const FullRun full = Take(places, message);
  EXPECT(full.run.arguments == (Ids{11, 20, 31}));
  EXPECT(full.results == (Ids{12, 50}));
  EXPECT(full.run.donated.empty());
  EXPECT(Take(places, Next(102, 101)).run.arguments == (Ids{12, 20, 31}));
}

TEST(ShardsPutTogetherAreNamedEachTime) {
  Places places = Training();
  wire::RunInPlace message = First();
  message.before[1] = message.after[1] = wire::kAssembledBit;
  message.assembled = {21, 0, 22, 0};
  EXPECT(Take(places, message).run.arguments[1] == wire::kAssembledBit);
  EXPECT(Take(places, Next(101, 100)).run.arguments == (Ids{11, 0, 31}));  // which no buffer has
}

TEST(ALostRunIsNoticed) {
  Places places = Training();
  Take(places, First());
  EXPECT_EQ(places.Check(Next(102, 101)).code(), Code::kFailedPrecondition);
  EXPECT_EQ(Training().Check(Next(101, 100)).code(), Code::kFailedPrecondition);
  ASSERT_OK(places.Check(First(103)));  // beginning anew is always possible
}

TEST(AMessageThatDoesNotFitTheProgramIsRefused) {
  const auto refused = [](auto&& spoil) {
    wire::RunInPlace message = First();
    spoil(message);
    return Training().Check(message).code() == Code::kInvalidArgument;
  };
  EXPECT(refused([](auto& m) { m.argument_places.pop_back(); }));
  EXPECT(refused([](auto& m) { m.result_places = {0, 0}; }));
  EXPECT(refused([](auto& m) { m.result_places = {2, kNone}; }));
  EXPECT(refused([](auto& m) { m.places = {0, 0}; }));
  EXPECT(refused([](auto& m) { m.places = {0, kNone}; }));
  EXPECT(refused([](auto& m) { m.after.pop_back(); }));
  EXPECT(refused([](auto& m) { m.arguments.clear(); }));
  EXPECT(refused([](auto& m) { m.output_count = 2; }));
  EXPECT(refused([](auto& m) { m.donated = {3}; }));
  Places places = Training();
  Take(places, First());
  wire::RunInPlace again = Next(101, 100);
  again.result_places = {0, kNone};
  EXPECT_EQ(places.Check(again).code(), Code::kInvalidArgument);
}

TEST(ArgumentsThatStepsOverwriteAreFound) {
  wire::RegisterPlan plan;
  plan.slots.resize(3);
  plan.inputs = {{2, 1}, {wire::kNoSlot, 1}, {0, 1}};
  wire::PlanStep step;
  step.kind = wire::StepKind::kExecute;
  step.arguments = {0, 2};
  step.donated = {1};
  plan.steps = {step};
  EXPECT(OverwrittenInputs(plan) == (std::vector<char>{1, 0, 0}));
}

}  // namespace
}  // namespace pathways::plan
