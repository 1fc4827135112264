// ClusterState: programs and runs.
//
// The gates that a run passes, in order: it is well formed and its client's own; its function or plans are there and
// compiled (else it waits); there is memory for it (else it waits); its turn has come on every island it needs (else it
// waits). Then the same bytes go to every host that takes part, with its place in the cluster's order.
#include <algorithm>
#include <optional>

#include "csrc/controller/cluster_state.h"

namespace pathways::controller {
namespace {

using scheduler::GangPart;
using scheduler::GangShape;

}  // namespace

Status ClusterState::CheckRun(uint32_t client, uint64_t run, uint64_t first_output, uint32_t output_count,
                              const std::vector<uint64_t>& arguments, const std::vector<uint64_t>& assembled) const {
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(run, "run"));
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(first_output, "buffer"));
  if (output_count > wire::kMaxRunOutputs) {
    return InvalidArgument("expected a run with at most " + std::to_string(wire::kMaxRunOutputs) + " outputs, got " +
                           std::to_string(output_count));
  }
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(first_output + output_count, "buffer"));
  for (const uint64_t argument : arguments) {
    if (!(argument & wire::kAssembledBit)) PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(argument, "buffer"));
  }
  for (size_t i = 0; i < assembled.size(); i += 2) {
    PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(assembled[i], "buffer"));
  }
  return OkStatus();
}

Outcome ClusterState::FailRun(const Client& owner, uint64_t run, Status status, Outbox& outbox) {
  wire::Done done;
  done.outcomes.push_back({run, 0, 0, std::move(status)});
  outbox.Send(owner.connection, done);
  return Outcome::kHandled;
}

// --- functions on slices

Result<std::shared_ptr<const GangShape>> ClusterState::ShapeOfRun(const wire::Run& run, FunctionState& function) {
  if (run.devices.empty()) return InvalidArgument("a run needs at least one device, got none");
  if (run.devices.size() == 1) {
    const uint32_t device = run.devices[0];
    PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(device));
    if (!function.hosts.contains(host->description.host)) {
      return NotFound("function " + Quoted(function.name) + " is not registered on host " +
                      Quoted(host->description.name));
    }
    std::shared_ptr<const GangShape>& shape = device_shapes_[device];
    if (!shape) {
      auto made = std::make_shared<GangShape>();
      made->Add(host->description.host, host->island, device);
      shape = std::move(made);
    }
    return shape;
  }
  if (function.shape && function.devices == run.devices) return function.shape;
  auto shape = std::make_shared<GangShape>();
  const Host* first = nullptr;
  for (const uint32_t device : run.devices) {
    PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(device));
    if (first == nullptr) first = host;
    PW_RETURN_IF_ERROR(Hosts::ComputeTogether(*first, *host));
    if (!function.hosts.contains(host->description.host)) {
      return NotFound("function " + Quoted(function.name) + " is not registered on host " +
                      Quoted(host->description.name));
    }
    shape->Add(host->description.host, host->island, device);
  }
  if (shape->device_count != run.devices.size()) {
    return InvalidArgument("a run needs each of its devices once, got " + std::to_string(run.devices.size()) +
                           " of which " + std::to_string(shape->device_count) + " differ");
  }
  function.devices = run.devices;
  function.shape = std::move(shape);
  return function.shape;
}

Result<Outcome> ClusterState::HandleRun(uint32_t client, Message& message, Outbox& outbox) {
  PW_ASSIGN_OR_RETURN(wire::Run run, wire::Decode<wire::Run>(message.head.body));
  PW_RETURN_IF_ERROR(CheckRun(client, run.run, run.first_output, run.output_count, run.arguments, run.assembled));
  Client& owner = clients_.at(client);
  auto function = owner.functions.find(run.function);
  if (function == owner.functions.end()) {
    return FailRun(owner, run.run, NotFound("function " + std::to_string(run.function) + " is not registered"), outbox);
  }
  Result<std::shared_ptr<const GangShape>> shape = ShapeOfRun(run, function->second);
  if (!shape.ok()) return FailRun(owner, run.run, shape.status(), outbox);
  for (const GangPart& part : (*shape)->parts) {
    const Host& host = hosts_[part.host];
    if (!host.alive()) return FailRun(owner, run.run, Unavailable(host.lost_reason), outbox);
    if (function->second.pending > 0 && function->second.hosts.at(part.host) == Compile::kPending) {
      return owner.stream.MustWait(Wait::kCompile, run.function);
    }
  }
  const MemoryGate::Pass pass = gate_.AskForRun(
      client, run.run, **shape, owner.stream,
      [&](MemoryRequest& request) { RequestRun(client, run, function->second, **shape, request); }, outbox);
  if (!pass.may_go) return owner.stream.MustWait(Wait::kMemory, run.run);
  return Dispatch(owner, {run.run, client, run.function, *std::move(shape), message.arrival}, pass.entered, message,
                  outbox);
}

// --- programs

std::shared_ptr<const GangShape> ClusterState::ShapeOfProgram(const ProgramState& program) const {
  auto shape = std::make_shared<GangShape>();
  for (const auto& [host, plan] : program.hosts) {
    const uint32_t island = hosts_[host].island;
    shape->parts.push_back({host, island, plan.devices});
    shape->device_count += static_cast<uint32_t>(plan.devices.size());
    std::vector<uint32_t>& islands = shape->islands;
    if (std::find(islands.begin(), islands.end(), island) == islands.end()) islands.push_back(island);
  }
  return shape;
}

Result<ProgramState*> ClusterState::ProgramOf(uint32_t client, uint64_t id, uint64_t first_key) {
  Client& owner = clients_.at(client);
  auto it = owner.programs.find(id);
  if (it == owner.programs.end()) return nullptr;
  if (it->second.channels > 0) {
    PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(first_key, "transfer"));
    PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(first_key + it->second.channels, "transfer"));
  }
  return &it->second;
}

Result<Outcome> ClusterState::HandleRunProgram(uint32_t client, Message& message, Outbox& outbox) {
  PW_ASSIGN_OR_RETURN(wire::RunProgram run, wire::Decode<wire::RunProgram>(message.head.body));
  PW_RETURN_IF_ERROR(CheckRun(client, run.run, run.first_output, run.output_count, run.arguments, run.assembled));
  Client& owner = clients_.at(client);
  PW_ASSIGN_OR_RETURN(ProgramState * named, ProgramOf(client, run.program, run.first_key));
  if (named == nullptr) {
    return FailRun(owner, run.run, NotFound("program " + std::to_string(run.program) + " is not registered"), outbox);
  }
  ProgramState& program = *named;
  if (run.arguments.size() != program.inputs || run.output_count != program.outputs) {
    return FailRun(owner, run.run,
                   InvalidArgument("program " + Quoted(program.name) + " takes " + std::to_string(program.inputs) +
                                   " arguments and gives " + std::to_string(program.outputs) + " results, got " +
                                   std::to_string(run.arguments.size()) + " and " + std::to_string(run.output_count)),
                   outbox);
  }
  if (!program.failure.ok()) return FailRun(owner, run.run, program.failure, outbox);
  if (program.pending > 0) return owner.stream.MustWait(Wait::kPlan, run.program);
  if (!program.shape) program.shape = ShapeOfProgram(program);
  const MemoryGate::Pass pass = gate_.AskForRun(
      client, run.run, *program.shape, owner.stream,
      [&](MemoryRequest& request) { RequestProgram(client, run, program, request); }, outbox);
  if (!pass.may_go) return owner.stream.MustWait(Wait::kMemory, run.run);
  return Dispatch(owner, {run.run, client, run.program, program.shape, message.arrival}, pass.entered, message, outbox);
}

Status ClusterState::CheckOwners(uint32_t client, const wire::RunInPlace& run) const {
  // What the run is given and makes; that its places are the client's own was checked when they were filled.
  PW_RETURN_IF_ERROR(CheckRun(client, run.run, run.first_output, run.output_count, run.arguments, run.assembled));
  PW_RETURN_IF_ERROR(CheckRun(client, run.run, run.first_output, 0, run.after, {}));
  for (const uint64_t id : run.before) {
    if (id != 0 && !(id & wire::kAssembledBit)) PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(id, "buffer"));
  }
  return OkStatus();
}

Result<Outcome> ClusterState::HandleRunInPlace(uint32_t client, Message& message, Outbox& outbox) {
  PW_ASSIGN_OR_RETURN(const wire::RunInPlace run, wire::Decode<wire::RunInPlace>(message.head.body));
  PW_RETURN_IF_ERROR(CheckOwners(client, run));
  Client& owner = clients_.at(client);
  PW_ASSIGN_OR_RETURN(ProgramState * named, ProgramOf(client, run.program, run.first_key));
  if (named == nullptr) {
    return FailRun(owner, run.run, NotFound("program " + std::to_string(run.program) + " is not registered"), outbox);
  }
  ProgramState& program = *named;
  if (!program.failure.ok()) return FailRun(owner, run.run, program.failure, outbox);
  if (program.pending > 0) return owner.stream.MustWait(Wait::kPlan, run.program);
  if (Status fits = program.places.Check(run); !fits.ok()) {
    return FailRun(owner, run.run, fits.WithPrefix("program " + Quoted(program.name)), outbox);
  }
  if (!program.shape) program.shape = ShapeOfProgram(program);
  std::optional<plan::Places> changed;  // taken over once the message goes on: it may come here several times
  if (run.previous == 0 || !run.places.empty()) {
    changed = program.places;
    changed->Apply(run);
  }
  const MemoryGate::Pass pass = gate_.AskForRun(
      client, run.run, *program.shape, owner.stream,
      [&](MemoryRequest& request) {
        RequestInPlace(client, run, program, changed ? *changed : program.places, request);
      },
      outbox);
  if (!pass.may_go) return owner.stream.MustWait(Wait::kMemory, run.run);
  const Outcome outcome =
      Dispatch(owner, {run.run, client, run.program, program.shape, message.arrival}, pass.entered, message, outbox);
  if (outcome == Outcome::kMustWait) return outcome;
  if (changed) {
    program.places = *std::move(changed);
    program.residents.reset();
  } else {
    program.places.Apply(run);
  }
  return outcome;
}

// --- the last gate

Outcome ClusterState::Dispatch(Client& owner, const scheduler::Gang& gang, const MemoryRequest* entered,
                               Message& message, Outbox& outbox) {
  if (!owner.stream.is_granted(gang.run)) {
    Result<bool> granted = scheduler_.Ask(gang, outbox.now_ms());
    if (entered != nullptr && !(granted.ok() && *granted)) memory_.Hold(*entered);
    if (!granted.ok()) {
      memory_.Cancel(gang.client);
      return FailRun(owner, gang.run, granted.status(), outbox);
    }
    if (!*granted) return owner.stream.MustWait(Wait::kTurn, gang.run);
  }
  owner.stream.Dispatched();
  if (entered != nullptr) {
    memory_.Start(*entered);
  } else {
    memory_.StartHeld(gang.client, gang.run);
  }
  const std::vector<GangPart>& parts = gang.shape->parts;
  wire::PatchSequence(message.frame, scheduler_.last_sequence());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Connection& to = hosts_[parts[i].host].connection;
    if (!options_.scheduling.arbitrate) {
      arrival_order_.Deliver(gang.client, parts[i].host, Outgoing{to, message.frame, message.payloads},
                             [&outbox](Outgoing message) { outbox.Pass(std::move(message)); });
    } else if (i + 1 < parts.size()) {
      outbox.Pass(to, message.frame, message.payloads);
    } else {
      outbox.Pass(to, std::move(message.frame), std::move(message.payloads));
    }
  }
  return Outcome::kHandled;
}

}  // namespace pathways::controller
