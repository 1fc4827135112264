#include "csrc/client/programs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "csrc/client/session.h"

namespace pathways::client {

Program::Program(std::shared_ptr<Session> session, uint64_t id, ProgramSpec spec)
    : session_(std::move(session)),
      id_(id),
      spec_(std::move(spec)),
      description_(std::make_shared<const std::string>("program '" + spec_.name + "'" +
                                                       (spec_.source.empty() ? "" : " (" + spec_.source + ")"))) {}

Program::~Program() { session_->programs().Unregister(id_); }

void Programs::Unregister(uint64_t id) noexcept {
  std::lock_guard lock(core_.mutex);
  pending_.erase(id);
  if (!core_.closed) core_.releases.UnregisterProgram(id);
}

Result<std::shared_ptr<Program>> Programs::Register(ProgramSpec spec) {
  if (spec.plans.empty()) return InvalidArgument("expected a program with a plan for at least one host, got none");
  PW_ASSIGN_OR_RETURN(std::vector<uint32_t> hosts, HostsOf(spec));
  PW_RETURN_IF_ERROR(RegisterFunctionsOf(spec));
  std::vector<wire::RegisterPlan> plans = std::exchange(spec.plans, {});
  auto program = std::make_shared<Program>(core_.Keep(), core_.MintIds(), std::move(spec));
  {
    std::lock_guard lock(core_.mutex);
    pending_[program->id_] = {program->ready_, program->description_, {hosts.begin(), hosts.end()}};
  }
  program->hosts_ = std::make_shared<const std::vector<uint32_t>>(std::move(hosts));
  core_.SendReleases();
  for (wire::RegisterPlan& plan : plans) {
    plan.program = program->id_;
    plan.name = program->spec_.name;
    plan.source = program->spec_.source;
    for (size_t k = 0; k < plan.inputs.size(); ++k) {
      plan.inputs[k].shard_count = static_cast<uint32_t>(program->spec_.inputs[k].devices.size());
    }
    for (size_t k = 0; k < plan.outputs.size(); ++k) {
      plan.outputs[k].shard_count = static_cast<uint32_t>(program->spec_.outputs[k].devices.size());
    }
    program->channels_ = std::max(program->channels_, plan.channels);
    PW_RETURN_IF_ERROR(core_.Send(plan));
  }
  return program;
}

Result<std::vector<uint32_t>> Programs::HostsOf(const ProgramSpec& spec) const {
  std::vector<uint32_t> hosts;
  std::lock_guard lock(core_.mutex);
  for (const wire::RegisterPlan& plan : spec.plans) {
    PW_RETURN_IF_ERROR(core_.CheckHost(plan.host));
    if (std::find(hosts.begin(), hosts.end(), plan.host) != hosts.end()) {
      return InvalidArgument("expected one plan per host, got two for host " + std::to_string(plan.host));
    }
    hosts.push_back(plan.host);
    if (plan.inputs.size() != spec.inputs.size() || plan.outputs.size() != spec.outputs.size()) {
      return InvalidArgument("expected every plan to list the program's " + std::to_string(spec.inputs.size()) +
                             " inputs and " + std::to_string(spec.outputs.size()) + " outputs");
    }
  }
  return hosts;
}

// A function of one device is registered on a host when it is first used there.
Status Programs::RegisterFunctionsOf(const ProgramSpec& spec) {
  std::map<uint64_t, Function*> one_device;
  for (const std::shared_ptr<Function>& function : spec.functions) {
    if (function->spec().one_device) one_device[function->id()] = function.get();
  }
  for (const wire::RegisterPlan& plan : spec.plans) {
    uint32_t device;
    {
      std::lock_guard lock(core_.mutex);
      device = core_.hosts[plan.host].first_device;
    }
    std::set<uint64_t> seen;
    for (const wire::PlanStep& step : plan.steps) {
      if (step.kind != wire::StepKind::kExecute || !seen.insert(step.function).second) continue;
      const auto function = one_device.find(step.function);
      if (function == one_device.end()) continue;
      PW_RETURN_IF_ERROR(functions_.EnsureRegistered(*function->second, device).status());
    }
  }
  return OkStatus();
}

void Programs::OnPlanReady(const wire::PlanReady& answer) {
  std::shared_ptr<Event> event;
  Status status;
  {
    std::lock_guard lock(core_.mutex);
    const auto it = pending_.find(answer.program);
    if (it == pending_.end()) return;
    Preparation& plans = it->second;
    plans.Answer(answer.host, answer.status);
    if (!plans.waiting_for.empty() && plans.first_error.ok()) return;
    event = plans.done;
    status = plans.first_error;
  }
  event->Set(status);
}

void Programs::Fail(const Loss& loss, Endings& ended) {
  for (auto& [id, plans] : pending_) plans.Fail(loss, ended);
}

void Programs::List(std::vector<PendingItem>& out) const {
  for (const auto& [id, plans] : pending_) plans.List("prepare", out);
}

}  // namespace pathways::client
