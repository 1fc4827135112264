// Plans that are refused, and the walker over a host that computes with plain numbers.
#include <map>
#include <memory>
#include <optional>

#include "csrc/plan/walker.h"
#include "csrc/testing/test.h"

namespace pathways::plan {
namespace {

using wire::PlanStep;
using wire::StepKind;

constexpr uint64_t kDouble = 11, kAdd = 12, kBroken = 13;

PlanStep Execute(uint64_t function, std::vector<uint32_t> arguments, std::vector<uint32_t> results,
                 std::vector<uint32_t> donated = {}) {
  PlanStep step;
  step.kind = StepKind::kExecute;
  step.function = function;
  step.arguments = std::move(arguments);
  step.results = std::move(results);
  step.donated = std::move(donated);
  return step;
}

PlanStep Receive(uint32_t slot, uint32_t channel) {
  PlanStep step;
  step.kind = StepKind::kReceive;
  step.results = {slot};
  step.pieces = {{channel, 1, {}}};
  return step;
}

PlanStep Send(uint32_t slot, uint32_t channel) {
  PlanStep step;
  step.kind = StepKind::kSend;
  step.arguments = {slot};
  step.channel = channel;
  step.host = 1;
  return step;
}

PlanStep Free(std::vector<uint32_t> slots) {
  PlanStep step;
  step.kind = StepKind::kFree;
  step.arguments = std::move(slots);
  return step;
}

wire::RegisterPlan Description(uint32_t slots, std::vector<PlanStep> steps) {
  wire::RegisterPlan plan;
  plan.name = "p";
  plan.channels = 4;
  plan.nodes = {"n"};
  plan.slots.assign(slots, {{DType::kF32, {2}}, {0}, {0}});
  plan.inputs = {{0, 1}};
  plan.outputs = {{slots - 1, 1}};
  plan.steps = std::move(steps);
  return plan;
}

std::string Refusal(wire::RegisterPlan description) {
  Result<Plan> plan = Plan::Make(std::move(description), 0, 2);
  return plan.ok() ? "" : std::string(plan.status().message());
}

bool Says(const std::string& message, const char* part) { return message.find(part) != std::string::npos; }

TEST(WhatCannotRunIsRefusedWithTheReason) {
  EXPECT_EQ(Refusal(Description(2, {Execute(kDouble, {0}, {1})})), std::string());
  EXPECT(Says(Refusal(Description(3, {Execute(kDouble, {1}, {2})})), "read before it is written"));
  EXPECT(Says(Refusal(Description(2, {Execute(kDouble, {7}, {1})})), "no slot 7"));
  EXPECT(Says(Refusal(Description(2, {Execute(kDouble, {0}, {0})})), "written twice"));
  EXPECT(Says(Refusal(Description(2, {Free({0}), Execute(kDouble, {0}, {1})})), "after it was given up"));
  EXPECT(Says(Refusal(Description(2, {Execute(kDouble, {0}, {1}, {0}), Send(0, 1)})), "after it was given up"));
  EXPECT(Says(Refusal(Description(2, {Execute(kDouble, {0}, {1}), Free({1})})), "holds nothing at the end"));
  EXPECT(Says(Refusal(Description(2, {Receive(1, 9)})), "channel"));
  wire::RegisterPlan elsewhere = Description(2, {Execute(kDouble, {0}, {1})});
  elsewhere.slots[1].devices = {5};
  EXPECT(Says(Refusal(elsewhere), "not of this host"));
  wire::RegisterPlan box = Description(2, {Send(0, 0), Execute(kDouble, {0}, {1})});
  box.steps[0].box = {{1}, {2}};
  EXPECT(Says(Refusal(box), "a box inside"));
}

TEST(GangsOverHostsAreInTheOrderOfTheWholeProgram) {
  std::vector<PlanStep> steps = {Execute(kDouble, {0}, {1}), Execute(kAdd, {0, 1}, {2}), Execute(kDouble, {2}, {3})};
  steps[0].gang = 2;
  steps[1].gang = 1;
  steps[2].gang = 7;
  Result<Plan> plan = Plan::Make(Description(4, steps), 0, 2);
  ASSERT_OK(plan.status());
  EXPECT_OK(plan->CheckOrder([](const PlanStep& step) { return step.function == kDouble; }));
  const Status refused = plan->CheckOrder([](const PlanStep&) { return true; });
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT(Says(std::string(refused.message()), "after gang 2 of the program comes gang 1"));
}

TEST(MemoryIsMeasured) {
  // 8 bytes a slot: 1 and 2 live together, then 3 replaces 1 and 2.
  Result<Plan> plan = Plan::Make(Description(4, {Execute(kDouble, {0}, {1}), Execute(kDouble, {1}, {2}),
                                                 Execute(kAdd, {1, 2}, {3}), Free({1, 2})}),
                                 0, 2);
  ASSERT_OK(plan.status());
  EXPECT_EQ(plan->peak_bytes()[0], int64_t{24});
  EXPECT_EQ(plan->peak_bytes()[1], int64_t{0});
  EXPECT_EQ(plan->result_bytes()[0], int64_t{8});
  EXPECT(!plan->is_leaf(0));
  EXPECT(!plan->is_leaf(1));
  EXPECT(plan->is_leaf(2));
}

// A host whose values are numbers.
struct Numbers {
  struct Cell {
    double number = 0;
    Status error;
  };
  using Value = std::shared_ptr<Cell>;
  std::map<uint64_t, Value> store;
  std::map<uint64_t, Value> sent;
  double incoming = 0;
  int donated = 0;
  int room = 0;  // for so many executions more

  bool IsSomething(const Value& value) const { return value != nullptr; }
  Status ErrorOf(const Value& value) const { return value->error; }
  Value Failed(Status status) const { return std::make_shared<Cell>(Cell{0, std::move(status)}); }
  Value Empty(const wire::PlanSlot&) const { return std::make_shared<Cell>(); }
  Result<Value> Argument(const Plan&, const wire::RunProgram& run, size_t position, bool) {
    auto it = store.find(run.arguments[position]);
    if (it == store.end()) return NotFound("no such buffer");
    return it->second;
  }
  Status Execute(const Plan& plan, size_t index, std::span<const Value> arguments, std::span<const char> may_donate,
                 std::span<Value> results) {
    const PlanStep& step = plan.steps()[index];
    if (step.function == kBroken) return Internal("broken").WithPrefix(plan.Describe(step));
    double sum = 0;
    for (const Value& value : arguments) sum += value->number;
    if (step.function == kDouble) sum *= 2;
    for (size_t i = 0; i < arguments.size(); ++i) donated += may_donate[i] && arguments[i].use_count() == 1;
    results[0] = std::make_shared<Cell>(Cell{sum, {}});
    return OkStatus();
  }
  void Send(const PlanStep&, const wire::PlanSlot&, const Value& value, uint64_t key) { sent[key] = value; }
  Status Receive(const PlanStep&, const wire::PlanSlot&, Value& value, uint64_t) {
    value->number = incoming;
    return OkStatus();
  }
  Status Copy(const PlanStep&, const Value& from, Value& to) {
    to = from;
    return OkStatus();
  }
  void Keep(size_t, uint64_t buffer, Value value) { store[buffer] = std::move(value); }
  bool HasRoom(const Plan&, size_t, std::span<const Value>) { return room > 0 && room-- > 0; }
};

wire::RunProgram RunOf(std::vector<uint64_t> arguments, std::vector<uint32_t> donated = {}) {
  wire::RunProgram run;
  run.first_output = 100;
  run.output_count = 1;
  run.first_key = 500;
  run.arguments = std::move(arguments);
  run.donated = std::move(donated);
  return run;
}

TEST(AWalkComputesSendsAndReceives) {
  Result<Plan> plan = Plan::Make(
      Description(4, {Execute(kDouble, {0}, {1}), Send(1, 3), Receive(2, 1), Execute(kAdd, {1, 2}, {3}, {0, 1})}), 0,
      2);
  ASSERT_OK(plan.status());
  Numbers host;
  host.store[7] = std::make_shared<Numbers::Cell>(Numbers::Cell{3, {}});
  host.incoming = 10;
  Walker<Numbers> walker;
  ASSERT_OK(walker.Walk(*plan, RunOf({7}), {}, host));
  EXPECT_EQ(host.store[100]->number, 16.0);
  EXPECT_EQ(host.sent[503]->number, 6.0);
  EXPECT_EQ(host.donated, 1);  // slot 1 is still held by what was sent
}

TEST(ArgumentsAreDonatedOnlyWhenGivenUp) {
  Result<Plan> plan = Plan::Make(Description(2, {Execute(kDouble, {0}, {1}, {0})}), 0, 2);
  ASSERT_OK(plan.status());
  Walker<Numbers> walker;
  Numbers host;
  host.store[7] = std::make_shared<Numbers::Cell>();
  ASSERT_OK(walker.Walk(*plan, RunOf({7}), {}, host));
  EXPECT_EQ(host.donated, 0);
}

TEST(AWalkStopsWhereThereIsNoRoomAndGoesOnThere) {
  Result<Plan> plan = Plan::Make(
      Description(4, {Execute(kDouble, {0}, {1}), Send(1, 0), Execute(kDouble, {1}, {2}), Execute(kDouble, {2}, {3})}),
      0, 2);
  ASSERT_OK(plan.status());
  Walker<Numbers> walker;
  Numbers host;
  host.store[7] = std::make_shared<Numbers::Cell>(Numbers::Cell{1, {}});
  const wire::RunProgram run = RunOf({7});
  walker.Begin(*plan, run, host);
  EXPECT(!walker.Continue(*plan, run, host));
  EXPECT(host.sent.empty());
  host.room = 2;
  EXPECT(!walker.Continue(*plan, run, host));
  EXPECT_EQ(host.sent.size(), size_t{1});
  EXPECT(!host.store.contains(100));
  host.room = 1;
  EXPECT(walker.Continue(*plan, run, host));
  EXPECT_OK(walker.Finish(*plan, run, {}, host));
  EXPECT_EQ(host.store[100]->number, 8.0);
}

TEST(ErrorsAreValues) {
  Result<Plan> plan = Plan::Make(
      Description(4, {Execute(kBroken, {0}, {1}), Execute(kDouble, {1}, {2}), Send(2, 0), Execute(kDouble, {0}, {3})}),
      0, 2);
  ASSERT_OK(plan.status());
  Walker<Numbers> walker;
  Numbers host;
  host.store[7] = std::make_shared<Numbers::Cell>(Numbers::Cell{1, {}});
  const Status status = walker.Walk(*plan, RunOf({7}), {}, host);
  EXPECT(Says(std::string(status.message()), "node 'n' of program 'p'"));
  EXPECT(Says(std::string(host.sent[500]->error.message()), "broken"));
  EXPECT_EQ(host.store[100]->number, 2.0);  // what does not depend on it goes on
  const Status missing = walker.Walk(*plan, RunOf({8}), {}, host);
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_EQ(host.store[100]->error.code(), Code::kNotFound);
}

}  // namespace
}  // namespace pathways::plan
