// Engine: programs. Plans are registered, and answered once their functions are compiled.
#include <algorithm>

#include "csrc/worker/engine.h"

namespace pathways::worker {

std::string Engine::Program::Describe(size_t step) const {
  std::string text = plan->Describe(plan->steps()[step]);
  if (!plan->description().source.empty()) text += " (" + plan->description().source + ")";
  return text;
}

Status Engine::OnRegisterPlan(const wire::Head& head) {
  PW_ASSIGN_OR_RETURN(wire::RegisterPlan description, wire::Decode<wire::RegisterPlan>(head.body));
  const uint64_t id = description.program;
  auto [it, fresh] = programs_.try_emplace(id, std::make_shared<Program>());
  if (!fresh) return Status(Code::kAlreadyExists, "program " + std::to_string(id) + " exists");
  Program& program = *it->second;
  Result<plan::Plan> made =
      plan::Plan::Make(std::move(description), context_.first_device(), static_cast<uint32_t>(context_.device_count()));
  if (!made.ok()) {
    program.status = context_.Here(made.status());
    AnswerPlan(id, program);
    return OkStatus();
  }
  program.plan = *std::move(made);
  program.places =
      plan::Places(plan::OverwrittenInputs(program.plan->description()), program.plan->description().outputs.size());
  program.by_step.resize(program.plan->steps().size());
  for (size_t i = 0; i < program.by_step.size(); ++i) {
    const wire::PlanStep& step = program.plan->steps()[i];
    if (step.kind != wire::StepKind::kExecute) continue;
    const std::shared_ptr<Function>& function = functions_->Find(step.function);
    if (function == nullptr) {
      program.status = context_.Here(NotFound(program.Describe(i) + " names function " + std::to_string(step.function) +
                                              ", which is not registered on this host"));
      break;
    }
    program.by_step[i] = function;
    program.spans_hosts = program.spans_hosts || function->places != nullptr;
  }
  if (program.status.ok() && program.spans_hosts) {
    program.status = context_.Here(program.plan->CheckOrder(
        [this](const wire::PlanStep& step) { return functions_->Find(step.function)->places != nullptr; }));
  }
  if (program.status.ok()) {
    for (uint64_t function : program.plan->functions()) {
      Function& waits_for = *functions_->Find(function);
      if (waits_for.compiled) continue;
      waits_for.programs.push_back(id);
      ++program.compiles_left;
    }
  }
  if (program.compiles_left == 0 || !program.status.ok()) AnswerPlan(id, program);
  return OkStatus();
}

void Engine::Compiled(uint64_t id, const Status& status) {
  auto it = programs_.find(id);
  if (it == programs_.end() || it->second->compiles_left == 0) return;
  Program& program = *it->second;
  if (!status.ok() && program.status.ok()) program.status = status;
  if (--program.compiles_left == 0) AnswerPlan(id, program);
}

// The plan's slots must be where its functions compute, and as many as they take and give.
Status Engine::CheckAgainstFunctions(Program& program) {
  const plan::Plan& plan = *program.plan;
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const wire::PlanStep& step = plan.steps()[i];
    if (step.kind != wire::StepKind::kExecute) continue;
    const Function& function = *program.by_step[i];
    if (!function.status.ok()) return function.status;
    const auto wrong = [&](const std::string& why) {
      return context_.Here(InvalidArgument(program.Describe(i) + ", " + function.Describe() + ": " + why));
    };
    if (step.results.size() != function.outputs.size()) {
      return wrong("expected a place for each of its " + std::to_string(function.outputs.size()) + " results, got " +
                   std::to_string(step.results.size()));
    }
    if (step.results.empty() && step.arguments.empty()) return wrong("it has neither arguments nor results");
    for (size_t k = 0; k < step.results.size(); ++k) {
      if (plan.slots()[step.results[k]].type != function.outputs[k]) {
        return wrong("expected result " + std::to_string(k) + " to be " + function.outputs[k].ToString() + ", got " +
                     plan.slots()[step.results[k]].type.ToString());
      }
    }
    const auto at_home = [&](uint32_t slot) {
      const std::vector<uint32_t>& devices = plan.slots()[slot].devices;
      if (devices.size() != function.local.size()) return false;
      if (function.request.one_device) return true;
      for (size_t p = 0; p < devices.size(); ++p) {
        if (devices[p] != function.request.devices[function.local[p]]) return false;
      }
      return true;
    };
    for (const std::vector<uint32_t>* slots : {&step.arguments, &step.results}) {
      for (uint32_t slot : *slots) {
        if (!at_home(slot)) return wrong("slot " + std::to_string(slot) + " is not on the devices it was compiled for");
      }
    }
  }
  return OkStatus();
}

void Engine::AnswerPlan(uint64_t id, Program& program) {
  if (program.status.ok()) program.status = CheckAgainstFunctions(program);
  wire::PlanReady answer;
  answer.program = id;
  answer.host = context_.number();
  answer.status = program.status;
  if (program.status.ok()) {
    const plan::Plan& plan = *program.plan;
    answer.peak_bytes = plan.peak_bytes();
    answer.result_bytes = plan.result_bytes();
    int64_t scratch = 0;
    size_t executes = 0, computations = 0;
    std::vector<char> received(plan.slots().size(), 0);
    for (size_t i = 0; i < plan.steps().size(); ++i) {
      if (program.by_step[i]) {
        scratch = std::max(scratch, program.by_step[i]->temp_bytes);
        computations += program.by_step[i]->local.size();
        ++executes;
      }
      if (plan.steps()[i].kind == wire::StepKind::kReceive || plan.steps()[i].kind == wire::StepKind::kCopy) {
        received[plan.steps()[i].results[0]] = 1;
      }
    }
    for (int64_t& bytes : answer.peak_bytes) bytes += scratch;
    for (const wire::PlanPort& port : plan.description().outputs) {
      program.watch_output.push_back(port.slot != wire::kNoSlot && received[port.slot]);
    }
    const size_t most = std::max(computations, plan.description().nodes.size());
    if (executes > 1 && most <= wire::kMaxTimedComputations) program.times.emplace(computations);
  }
  context_.Send(answer);
}

Result<std::string> Engine::TimesOf(uint64_t id) const {
  auto it = programs_.find(id);
  if (it == programs_.end()) return context_.Here(NotFound("program " + std::to_string(id) + " is not registered"));
  wire::Times times;
  if (it->second->times) times = it->second->times->Collect(*it->second->plan, context_.first_device());
  const auto real = std::chrono::system_clock::now().time_since_epoch();
  times.real_ns_ahead = std::chrono::duration_cast<std::chrono::nanoseconds>(real).count() - SteadyNs();
  return wire::EncodeTimes(times);
}

}  // namespace pathways::worker
