#include "csrc/controller/registry.h"

#include <algorithm>
#include <map>
#include <utility>

#include "csrc/controller/memory_requests.h"

namespace pathways::controller {
namespace {

ProgramState ProgramOf(const wire::RegisterPlan& plan) {
  ProgramState program;
  program.name = plan.name;
  program.inputs = plan.inputs.size();
  program.outputs = plan.outputs.size();
  program.channels = plan.channels;
  for (const wire::PlanPort& port : plan.inputs) program.input_shards.push_back(port.shard_count);
  return program;
}

// A plan computes where it executes; one that only moves data occupies the devices of its slots.
std::vector<uint32_t> DevicesOf(const wire::RegisterPlan& plan) {
  std::vector<uint32_t> devices;
  const auto add = [&](const wire::PlanSlot& slot) {
    devices.insert(devices.end(), slot.devices.begin(), slot.devices.end());
  };
  for (const wire::PlanStep& step : plan.steps) {
    if (step.kind != wire::StepKind::kExecute) continue;
    for (const uint32_t slot : step.results) add(plan.slots[slot]);
  }
  if (devices.empty()) std::for_each(plan.slots.begin(), plan.slots.end(), add);
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

}  // namespace

Status Registry::Take(Client& owner, const wire::Register& request, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(request.function, "function"));
  if (request.devices.empty()) return InvalidArgument("REGISTER names no device");
  FunctionState& function = owner.functions[request.function];
  function.name = request.name;
  Status placed;  // a function of one device is its own computation on every host
  PW_ASSIGN_OR_RETURN(const Host* first, hosts_.OfDevice(request.devices[0]));
  for (uint32_t device : request.devices) {
    PW_ASSIGN_OR_RETURN(const Host* host, hosts_.OfDevice(device));
    if (placed.ok() && !request.one_device) placed = Hosts::ComputeTogether(*first, *host);
  }
  for (uint32_t device : request.devices) {
    PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(device));
    const uint32_t index = host->description.host;
    if (!host->alive() || !placed.ok()) {
      function.hosts[index] = Compile::kFailed;
      wire::Registered answer;
      answer.function = request.function;
      answer.host = index;
      answer.status = placed.ok() ? Unavailable(host->lost_reason) : placed;
      outbox.Send(owner.connection, answer);
      continue;
    }
    if (!function.hosts.try_emplace(index, Compile::kPending).second) continue;
    ++function.pending;
    outbox.Pass(host->connection, message.frame, message.payloads);
  }
  return OkStatus();
}

Status Registry::CheckPlan(const Client& owner, const wire::RegisterPlan& plan) const {
  const Host& host = hosts_[plan.host];
  const wire::HostDescription& description = host.description;
  for (const wire::PlanSlot& slot : plan.slots) {
    for (const uint32_t device : slot.devices) {
      if (device < description.first_device || device - description.first_device >= description.devices.size()) {
        return InvalidArgument("expected the devices " + std::to_string(description.first_device) + " to " +
                               std::to_string(description.first_device + description.devices.size() - 1) +
                               " in a plan of host " + Quoted(description.name) + ", got device " +
                               std::to_string(device));
      }
    }
  }
  for (const wire::PlanStep& step : plan.steps) {
    for (const std::vector<uint32_t>* slots : {&step.arguments, &step.results}) {
      for (const uint32_t slot : *slots) {
        if (slot < plan.slots.size()) continue;
        return InvalidArgument("expected a slot below " + std::to_string(plan.slots.size()) + ", got " +
                               std::to_string(slot));
      }
    }
    if (step.kind != wire::StepKind::kExecute) continue;
    auto function = owner.functions.find(step.function);
    if (function == owner.functions.end() || !function->second.hosts.contains(plan.host)) {
      return NotFound(
          "function " +
          (function == owner.functions.end() ? std::to_string(step.function) : Quoted(function->second.name)) +
          " is not registered on host " + Quoted(description.name));
    }
  }
  return OkStatus();
}

Status Registry::Take(Client& owner, const wire::RegisterPlan& plan, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(plan.program, "program"));
  for (const wire::PlanStep& step : plan.steps) {
    if (step.kind == wire::StepKind::kExecute) PW_RETURN_IF_ERROR(owner.CheckOwns(step.function, "function"));
  }
  if (plan.host >= hosts_.size()) return InvalidArgument("REGISTER_PLAN names host " + std::to_string(plan.host));
  auto [it, fresh] = owner.programs.try_emplace(plan.program);
  ProgramState& program = it->second;
  if (fresh) program = ProgramOf(plan);
  auto [entry, first_of_host] = program.hosts.try_emplace(plan.host);
  if (!first_of_host) {
    return InvalidArgument("program " + Quoted(program.name) + " has two plans for host " + std::to_string(plan.host));
  }
  program.shape.reset();
  program.overwritten.resize(program.inputs, 0);
  const std::vector<char> overwritten = plan::OverwrittenInputs(plan);
  for (size_t k = 0; k < std::min(overwritten.size(), program.inputs); ++k) program.overwritten[k] |= overwritten[k];
  program.places = plan::Places(program.overwritten, program.outputs);
  const Host& host = hosts_[plan.host];
  Status status = OkStatus();
  if (!host.alive()) {
    status = Unavailable(host.lost_reason);
  } else if (plan.inputs.size() != program.inputs || plan.outputs.size() != program.outputs ||
             plan.channels != program.channels) {
    status = InvalidArgument("the plans of program " + Quoted(program.name) +
                             " differ in their numbers of inputs, outputs or channels");
  } else {
    status = CheckPlan(owner, plan);
  }
  if (!status.ok()) {
    entry->second.state = Compile::kFailed;
    if (program.failure.ok()) program.failure = status;
    wire::PlanReady answer;
    answer.program = plan.program;
    answer.host = plan.host;
    answer.status = std::move(status);
    outbox.Send(owner.connection, answer);
    return OkStatus();
  }
  entry->second.devices = DevicesOf(plan);
  KeepCosts(plan, program, entry->second);
  ++program.pending;
  outbox.Pass(host.connection, std::move(message.frame));
  return OkStatus();
}

Status Registry::Take(Client& owner, const wire::Unregister& request, Message&, Outbox& outbox) {
  for (const uint64_t id : request.functions) PW_RETURN_IF_ERROR(owner.CheckOwns(id, "function"));
  for (const uint64_t id : request.programs) PW_RETURN_IF_ERROR(owner.CheckOwns(id, "program"));
  std::map<uint32_t, wire::Unregister> per_host;
  for (const uint64_t id : request.functions) {
    auto node = owner.functions.extract(id);
    if (node.empty()) continue;
    for (const auto& [host, state] : node.mapped().hosts) per_host[host].functions.push_back(id);
    scheduler_.ForgetWork(id);
  }
  for (const uint64_t id : request.programs) {
    auto node = owner.programs.extract(id);
    if (node.empty()) continue;
    for (const auto& [host, plan] : node.mapped().hosts) per_host[host].programs.push_back(id);
    scheduler_.ForgetWork(id);
  }
  for (const auto& [host, answer] : per_host) {
    if (hosts_[host].alive()) outbox.Send(hosts_[host].connection, answer);
  }
  return OkStatus();
}

Result<Client*> Registry::Registered(uint32_t host, const wire::Registered& answer, std::string frame, Outbox& outbox) {
  if (answer.host != host) return InvalidArgument("REGISTERED speaks for another host");
  Client* owner = clients_.OwnerOf(answer.function);
  if (owner == nullptr) return nullptr;
  auto function = owner->functions.find(answer.function);
  if (function != owner->functions.end()) {
    auto compiled = function->second.hosts.find(host);
    if (compiled == function->second.hosts.end()) return InvalidArgument("REGISTERED for a function it was not sent");
    if (compiled->second == Compile::kPending) --function->second.pending;
    compiled->second = answer.status.ok() ? Compile::kReady : Compile::kFailed;
    if (answer.status.ok()) KeepCosts(answer, function->second);
  }
  clients_.Tell(answer.function, std::move(frame), {}, outbox);
  return owner;
}

Result<Client*> Registry::PlanReady(uint32_t host, const wire::PlanReady& answer, std::string frame, Outbox& outbox) {
  if (answer.host != host) return InvalidArgument("PLAN_READY speaks for another host");
  Client* owner = clients_.OwnerOf(answer.program);
  if (owner == nullptr) return nullptr;
  auto program = owner->programs.find(answer.program);
  if (program != owner->programs.end()) {
    ProgramState& state = program->second;
    auto plan = state.hosts.find(host);
    if (plan == state.hosts.end()) return InvalidArgument("PLAN_READY for a program it was not sent");
    if (plan->second.state == Compile::kPending) --state.pending;
    plan->second.state = answer.status.ok() ? Compile::kReady : Compile::kFailed;
    if (answer.status.ok()) KeepCosts(answer, hosts_[host].description, plan->second);
    if (state.failure.ok()) state.failure = answer.status;
  }
  clients_.Tell(answer.program, std::move(frame), {}, outbox);
  return owner;
}

void Registry::LoseHost(uint32_t index, Client& client, const Status& status, Outbox& outbox) {
  for (auto& [id, function] : client.functions) {
    auto compiled = function.hosts.find(index);
    if (compiled == function.hosts.end() || compiled->second != Compile::kPending) continue;
    compiled->second = Compile::kFailed;
    --function.pending;
    wire::Registered answer;
    answer.function = id;
    answer.host = index;
    answer.status = status;
    outbox.Send(client.connection, answer);
  }
  for (auto& [id, program] : client.programs) {
    auto plan = program.hosts.find(index);
    if (plan == program.hosts.end()) continue;
    if (program.failure.ok()) program.failure = status;
    if (plan->second.state != Compile::kPending) continue;
    plan->second.state = Compile::kFailed;
    --program.pending;
    wire::PlanReady answer;
    answer.program = id;
    answer.host = index;
    answer.status = status;
    outbox.Send(client.connection, answer);
  }
}

void Registry::Forget(const Client& client) {
  for (const auto& [id, function] : client.functions) scheduler_.ForgetWork(id);
  for (const auto& [id, program] : client.programs) scheduler_.ForgetWork(id);
}

}  // namespace pathways::controller
