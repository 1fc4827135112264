#include "csrc/worker/programs.h"

#include <algorithm>
#include <chrono>

namespace pathways::worker {

std::string Program::Describe(size_t step) const {
  std::string text = plan->Describe(plan->steps()[step]);
  if (!plan->description().source.empty()) text += " (" + plan->description().source + ")";
  return text;
}

Status Programs::Register(wire::RegisterPlan description) {
  const uint64_t id = description.program;
  const auto [entry, fresh] = programs_.try_emplace(id, std::make_shared<Program>());
  if (!fresh) return Status(Code::kAlreadyExists, "program " + std::to_string(id) + " exists");
  Program& program = *entry->second;
  program.status = context_.Here(Make(std::move(description), program));
  if (program.status.ok()) {
    for (const uint64_t called : program.plan->functions()) {
      Function& function = *functions_.Find(called);
      if (function.compiled) continue;
      function.programs.push_back(id);
      ++program.compiles_left;
    }
  }
  if (program.compiles_left == 0) Answer(id, program);
  return OkStatus();
}

Status Programs::Make(wire::RegisterPlan description, Program& program) const {
  PW_ASSIGN_OR_RETURN(program.plan, plan::Plan::Make(std::move(description), context_.first_device(),
                                                     static_cast<uint32_t>(context_.device_count())));
  const plan::Plan& plan = *program.plan;
  program.places = plan::Places(plan::OverwrittenInputs(plan.description()), plan.description().outputs.size());
  program.by_step.resize(plan.steps().size());
  for (size_t i = 0; i < program.by_step.size(); ++i) {
    const wire::PlanStep& step = plan.steps()[i];
    if (step.kind != wire::StepKind::kExecute) continue;
    const std::shared_ptr<Function>& function = functions_.Find(step.function);
    if (function == nullptr) {
      return NotFound(program.Describe(i) + " names function " + std::to_string(step.function) +
                      ", which is not registered on this host");
    }
    program.by_step[i] = function;
    program.spans_hosts = program.spans_hosts || function->places != nullptr;
  }
  if (!program.spans_hosts) return OkStatus();
  return plan.CheckOrder(
      [this](const wire::PlanStep& step) { return functions_.Find(step.function)->places != nullptr; });
}

void Programs::Compiled(uint64_t id, const Status& status) {
  const auto it = programs_.find(id);
  if (it == programs_.end() || it->second->compiles_left == 0) return;
  Program& program = *it->second;
  if (!status.ok() && program.status.ok()) program.status = status;
  if (--program.compiles_left == 0) Answer(id, program);
}

// The plan's slots must be where its functions compute, and as many as they take and give.
Status Programs::CheckAgainstFunctions(const Program& program) const {
  for (size_t i = 0; i < program.by_step.size(); ++i) {
    if (program.by_step[i] == nullptr) continue;
    const Function& function = *program.by_step[i];
    if (!function.status.ok()) return function.status;
    const std::string wrong = CheckStep(program, program.plan->steps()[i], function);
    if (wrong.empty()) continue;
    return context_.Here(InvalidArgument(program.Describe(i) + ", " + function.Describe() + ": " + wrong));
  }
  return OkStatus();
}

std::string Programs::CheckStep(const Program& program, const wire::PlanStep& step, const Function& function) const {
  const std::vector<wire::PlanSlot>& all = program.plan->slots();
  if (step.results.size() != function.outputs.size()) {
    return "expected a place for each of its " + std::to_string(function.outputs.size()) + " results, got " +
           std::to_string(step.results.size());
  }
  if (step.results.empty() && step.arguments.empty()) return "it has neither arguments nor results";
  for (size_t k = 0; k < step.results.size(); ++k) {
    const TensorType& type = all[step.results[k]].type;
    if (type == function.outputs[k]) continue;
    return "expected result " + std::to_string(k) + " to be " + function.outputs[k].ToString() + ", got " +
           type.ToString();
  }
  const auto at_home = [&](uint32_t slot) {
    const std::vector<uint32_t>& devices = all[slot].devices;
    if (devices.size() != function.local.size()) return false;
    if (function.request.one_device) return true;
    for (size_t p = 0; p < devices.size(); ++p) {
      if (devices[p] != function.request.devices[function.local[p]]) return false;
    }
    return true;
  };
  for (const std::vector<uint32_t>* slots : {&step.arguments, &step.results}) {
    for (const uint32_t slot : *slots) {
      if (!at_home(slot)) return "slot " + std::to_string(slot) + " is not on the devices it was compiled for";
    }
  }
  return "";
}

void Programs::Answer(uint64_t id, Program& program) {
  if (program.status.ok()) program.status = CheckAgainstFunctions(program);
  wire::PlanReady answer;
  answer.program = id;
  answer.host = context_.number();
  answer.status = program.status;
  if (program.status.ok()) Measure(program, &answer);
  context_.Send(answer);
}

void Programs::Measure(Program& program, wire::PlanReady* answer) const {
  const plan::Plan& plan = *program.plan;
  answer->peak_bytes = plan.peak_bytes();
  answer->result_bytes = plan.result_bytes();
  int64_t scratch = 0;
  size_t executes = 0, computations = 0;
  std::vector<char> received(plan.slots().size(), 0);
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const wire::PlanStep& step = plan.steps()[i];
    if (program.by_step[i]) {
      scratch = std::max(scratch, program.by_step[i]->temp_bytes);
      computations += program.by_step[i]->local.size();
      ++executes;
    }
    if (step.kind == wire::StepKind::kReceive || step.kind == wire::StepKind::kCopy) received[step.results[0]] = 1;
  }
  for (int64_t& bytes : answer->peak_bytes) bytes += scratch;
  for (const wire::PlanPort& port : plan.description().outputs) {
    program.watch_output.push_back(port.slot != wire::kNoSlot && received[port.slot]);
  }
  const size_t most = std::max(computations, plan.description().nodes.size());
  if (executes > 1 && most <= wire::kMaxTimedComputations) program.times.emplace(computations);
}

void Programs::Unregister(std::span<const uint64_t> ids) {
  for (const uint64_t id : ids) programs_.erase(id);
}

void Programs::ForgetClient(uint32_t client) {
  std::erase_if(programs_, [client](const auto& entry) { return wire::ClientOf(entry.first) == client; });
}

Result<std::shared_ptr<Program>> Programs::Ready(uint64_t id) const {
  const auto it = programs_.find(id);
  if (it == programs_.end()) {
    return context_.Here(NotFound("program " + std::to_string(id) + " is not registered"));
  }
  PW_RETURN_IF_ERROR(it->second->status);
  if (it->second->compiles_left > 0) return context_.Here(Internal("a run overtook the compile of its program"));
  return it->second;
}

Result<std::string> Programs::TimesOf(uint64_t id) const {
  auto it = programs_.find(id);
  if (it == programs_.end()) return context_.Here(NotFound("program " + std::to_string(id) + " is not registered"));
  wire::Times times;
  if (it->second->times) times = it->second->times->Collect(*it->second->plan, context_.first_device());
  const auto real = std::chrono::system_clock::now().time_since_epoch();
  times.real_ns_ahead = std::chrono::duration_cast<std::chrono::nanoseconds>(real).count() - SteadyNs();
  return wire::EncodeTimes(times);
}

}  // namespace pathways::worker
