// Walker: runs a plan on a host's devices without waiting for data (parallel asynchronous dispatch, paper 4.5).
//
// It walks every step at once: buffers that come from elsewhere exist before their bytes do, computations are enqueued
// on them, sends hang on their source. What fails is a value too: it poisons what depends on it and is handed on.
//
// A template over what a host is, so that real and simulated devices run the same code. A Backend has
//   Value                                    a slot's local part; cheap to copy, default-constructed for "nothing"
//   bool IsSomething(const Value&)           not default-constructed
//   Status ErrorOf(const Value&)             the root cause when there is no value and never will be
//   Value Failed(Status)                     such a value
//   Result<Value> Argument(const Plan&, const wire::RunProgram&, size_t position, bool given_up)
//   Value Empty(const wire::PlanSlot&)       room for the shards of a slot that is filled one by one
//   Status Execute(const Plan&, size_t step, std::span<const Value> arguments, std::span<const char> may_donate,
//                  std::span<Value> results) an error here concerns this step and what depends on it
//   void Send(const wire::PlanStep&, const wire::PlanSlot&, const Value&, uint64_t key)   errors travel, too
//   Status Receive(const wire::PlanStep&, const wire::PlanSlot&, Value&, uint64_t first_key)
//   Status Copy(const wire::PlanStep&, const Value& from, Value& to)
//   void Keep(size_t result, uint64_t buffer, Value)      a result of the program
// and may have
//   bool HasRoom(const Plan&, size_t step, std::span<const Value> slots)   whether that execution or copy can be now
//   void Refuse(const wire::PlanStep&, uint64_t first_key, const Status&)   what a Receive step should have taken
//
// Devices take only so many executions that have not ended, and whoever enqueues more is made to wait. A host that is
// made to wait hears nothing meanwhile, not even of the loss that would end its wait. So the walk stops before such a
// step, and goes on when there is room. It also stops where a value must have arrived before it is read.
//
// Ownership: keeps its slots between walks only as memory to reuse. Threads: none inside; one walk at a time.
#ifndef PTPATHWAYS_PLAN_WALKER_H_
#define PTPATHWAYS_PLAN_WALKER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "csrc/plan/plan.h"

namespace pathways::plan {

template <typename Backend>
class Walker {
 public:
  using Value = typename Backend::Value;

  // Every output of the run gets a value or an error; what is returned is the first one of this host's own steps, for
  // the report. `results`: the buffers of the outputs; empty: those from run.first_output on. Asks for no room.
  Status Walk(const Plan& plan, const wire::RunProgram& run, std::span<const uint64_t> results, Backend& backend) {
    Begin(plan, run, backend);
    while (next_ < plan.steps().size()) Step(plan, run, next_++, backend);
    return Finish(plan, run, results, backend);
  }

  // The same in parts: Begin, then Continue until it is true, then Finish, all with the same arguments.
  void Begin(const Plan& plan, const wire::RunProgram& run, Backend& backend) {
    first_error_ = OkStatus();
    next_ = 0;
    slots_.assign(plan.slots().size(), Value());
    given_up_.assign(plan.slots().size(), 1);
    uses_.assign(plan.slots().size(), 0);
    const wire::RegisterPlan& description = plan.description();
    donated_.assign(description.inputs.size(), 0);
    for (const uint32_t position : run.donated) {
      if (position < donated_.size()) donated_[position] = 1;
    }
    for (size_t position = 0; position < description.inputs.size(); ++position) {
      const uint32_t slot = description.inputs[position].slot;
      if (slot == wire::kNoSlot) continue;
      given_up_[slot] = donated_[position];
      Result<Value> argument = backend.Argument(plan, run, position, donated_[position] != 0);
      if (!argument.ok()) Note(argument.status());
      slots_[slot] = argument.ok() ? *std::move(argument) : backend.Failed(argument.status());
    }
  }

  // False: there is no room for the next step.
  bool Continue(const Plan& plan, const wire::RunProgram& run, Backend& backend) {
    for (; next_ < plan.steps().size(); ++next_) {
      const wire::StepKind kind = plan.steps()[next_].kind;
      const bool asks = kind == wire::StepKind::kExecute || kind == wire::StepKind::kCopy;
      if (asks && !backend.HasRoom(plan, next_, slots_)) return false;
      Step(plan, run, next_, backend);
    }
    return true;
  }

  Status Finish(const Plan& plan, const wire::RunProgram& run, std::span<const uint64_t> results, Backend& backend) {
    const wire::RegisterPlan& description = plan.description();
    for (size_t k = 0; k < description.outputs.size(); ++k) {
      const uint32_t slot = description.outputs[k].slot;
      if (slot != wire::kNoSlot) backend.Keep(k, results.empty() ? run.first_output + k : results[k], slots_[slot]);
    }
    slots_.clear();
    return std::exchange(first_error_, OkStatus());
  }

 private:
  void Step(const Plan& plan, const wire::RunProgram& run, size_t index, Backend& backend) {
    const wire::PlanStep& step = plan.steps()[index];
    switch (step.kind) {
      case wire::StepKind::kExecute:
        return Execute(plan, index, backend);
      case wire::StepKind::kSend:
        return backend.Send(step, plan.slots()[step.arguments[0]], slots_[step.arguments[0]],
                            run.first_key + step.channel);
      case wire::StepKind::kReceive: {
        Value& target = Target(plan, step.results[0], backend);
        Status status = backend.ErrorOf(target);
        const bool failed_before = !status.ok();
        if (!failed_before) status = backend.Receive(step, plan.slots()[step.results[0]], target, run.first_key);
        if (status.ok()) return;
        if constexpr (requires { backend.Refuse(step, run.first_key, status); }) {
          backend.Refuse(step, run.first_key, status);
        }
        if (!failed_before) Fail(plan, step, target, std::move(status), backend);
        return;
      }
      case wire::StepKind::kCopy: {
        Value& target = Target(plan, step.results[0], backend);
        if (!backend.ErrorOf(target).ok()) return;
        const Value& from = slots_[step.arguments[0]];
        if (Status error = backend.ErrorOf(from); !error.ok()) {
          target = backend.Failed(std::move(error));
          return;
        }
        if (Status status = backend.Copy(step, from, target); !status.ok()) {
          Fail(plan, step, target, std::move(status), backend);
        }
        return;
      }
      case wire::StepKind::kFree:
        for (uint32_t slot : step.arguments) slots_[slot] = Value();
        return;
    }
  }

  void Execute(const Plan& plan, size_t index, Backend& backend) {
    const wire::PlanStep& step = plan.steps()[index];
    arguments_.clear();
    may_donate_.assign(step.arguments.size(), 0);
    for (uint32_t position : step.donated) {
      may_donate_[position] = given_up_[step.arguments[position]];
    }
    for (const uint32_t slot : step.arguments) ++uses_[slot];
    Status error;
    for (size_t position = 0; position < step.arguments.size() && error.ok(); ++position) {
      Value& value = slots_[step.arguments[position]];
      error = backend.ErrorOf(value);
      // A donated slot is not read again; moving it out leaves the walker without a reference, which shows the backend
      // that nobody else holds the memory.
      const bool last_use = may_donate_[position] && uses_[step.arguments[position]] == 1;
      arguments_.push_back(last_use ? std::exchange(value, Value()) : value);
    }
    for (const uint32_t slot : step.arguments) uses_[slot] = 0;
    results_.assign(step.results.size(), Value());
    if (error.ok()) {
      error = backend.Execute(plan, index, arguments_, may_donate_, results_);
      if (!error.ok()) Note(error);
    }
    for (size_t k = 0; k < step.results.size(); ++k) {
      slots_[step.results[k]] = error.ok() ? std::move(results_[k]) : backend.Failed(error);
    }
    arguments_.clear();
  }

  Value& Target(const Plan& plan, uint32_t slot, Backend& backend) {
    Value& target = slots_[slot];
    if (!backend.IsSomething(target)) target = backend.Empty(plan.slots()[slot]);
    return target;
  }

  void Fail(const Plan& plan, const wire::PlanStep& step, Value& target, Status status, Backend& backend) {
    status = status.WithPrefix(plan.Describe(step));
    Note(status);
    target = backend.Failed(std::move(status));
  }

  void Note(const Status& status) {
    if (first_error_.ok()) first_error_ = status;
  }

  size_t next_ = 0;  // the step that comes next
  std::vector<Value> slots_;
  std::vector<char> given_up_;  // by slot: the program owns it
  std::vector<char> donated_;   // by position of the program's arguments
  std::vector<uint32_t> uses_;  // by slot: how often the step at hand names it
  std::vector<Value> arguments_;
  std::vector<char> may_donate_;
  std::vector<Value> results_;
  Status first_error_;
};

}  // namespace pathways::plan

#endif  // PTPATHWAYS_PLAN_WALKER_H_
