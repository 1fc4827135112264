#include "csrc/controller/runs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "csrc/controller/memory_requests.h"

namespace pathways::controller {
namespace {

using scheduler::GangPart;
using scheduler::GangShape;

// The run, its outputs and its arguments are the client's own, and not too many.
Status CheckRun(const Client& owner, uint64_t run, uint64_t first_output, uint32_t output_count,
                const std::vector<uint64_t>& arguments, const std::vector<uint64_t>& assembled) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(run, "run"));
  PW_RETURN_IF_ERROR(owner.CheckOwns(first_output, "buffer"));
  if (output_count > wire::kMaxRunOutputs) {
    return InvalidArgument("expected a run with at most " + std::to_string(wire::kMaxRunOutputs) + " outputs, got " +
                           std::to_string(output_count));
  }
  PW_RETURN_IF_ERROR(owner.CheckOwns(first_output + output_count, "buffer"));
  for (const uint64_t argument : arguments) {
    if (!(argument & wire::kAssembledBit)) PW_RETURN_IF_ERROR(owner.CheckOwns(argument, "buffer"));
  }
  for (size_t i = 0; i < assembled.size(); i += 2) {
    PW_RETURN_IF_ERROR(owner.CheckOwns(assembled[i], "buffer"));
  }
  return OkStatus();
}

// Before any host was given the run.
template <typename Run>
Outcome FailRun(Client& owner, const Run& run, Status status, Outbox& outbox) {
  owner.failed_outputs.Note(run.first_output, run.output_count, status);
  wire::Done done;
  done.outcomes.push_back({run.run, 0, 0, std::move(status)});
  outbox.Send(owner.connection, done);
  return Outcome::kHandled;
}

// The program that a run names, null if there is none. The run's transfers must have the client's keys.
Result<ProgramState*> ProgramOf(Client& owner, uint64_t id, uint64_t first_key) {
  auto it = owner.programs.find(id);
  if (it == owner.programs.end()) return nullptr;
  if (it->second.channels > 0) {
    PW_RETURN_IF_ERROR(owner.CheckOwns(first_key, "transfer"));
    PW_RETURN_IF_ERROR(owner.CheckOwns(first_key + it->second.channels, "transfer"));
  }
  return &it->second;
}

Status CheckOwners(const Client& owner, const wire::RunInPlace& run) {
  // What the run is given and makes; that its places are the client's own was checked when they were filled.
  PW_RETURN_IF_ERROR(CheckRun(owner, run.run, run.first_output, run.output_count, run.arguments, run.assembled));
  PW_RETURN_IF_ERROR(CheckRun(owner, run.run, run.first_output, 0, run.after, {}));
  for (const uint64_t id : run.before) {
    if (id != 0 && !(id & wire::kAssembledBit)) PW_RETURN_IF_ERROR(owner.CheckOwns(id, "buffer"));
  }
  return OkStatus();
}

}  // namespace

// --- functions on slices

Result<std::shared_ptr<const GangShape>> Runs::ShapeOfRun(const wire::Run& run, FunctionState& function) {
  if (run.devices.empty()) return InvalidArgument("a run needs at least one device, got none");
  if (run.devices.size() == 1) {
    const uint32_t device = run.devices[0];
    PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(device));
    if (!function.hosts.contains(host->description.host)) {
      return NotFound("function " + Quoted(function.name) + " is not registered on host " +
                      Quoted(host->description.name));
    }
    if (device_shapes_.size() <= device) device_shapes_.resize(hosts_.device_count());
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

Result<Outcome> Runs::Take(Client& owner, const wire::Run& run, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(CheckRun(owner, run.run, run.first_output, run.output_count, run.arguments, run.assembled));
  if (const Status* cause = owner.failed_outputs.FindAmong(run.arguments, run.assembled)) {
    return FailRun(owner, run, *cause, outbox);
  }
  auto function = owner.functions.find(run.function);
  if (function == owner.functions.end()) {
    return FailRun(owner, run, NotFound("function " + std::to_string(run.function) + " is not registered"), outbox);
  }
  Result<std::shared_ptr<const GangShape>> shape = ShapeOfRun(run, function->second);
  if (!shape.ok()) return FailRun(owner, run, shape.status(), outbox);
  for (const GangPart& part : (*shape)->parts) {
    const Host& host = hosts_[part.host];
    if (!host.alive()) return FailRun(owner, run, Unavailable(host.lost_reason), outbox);
    if (function->second.pending > 0 && function->second.hosts.at(part.host) == Compile::kPending) {
      return owner.stream.MustWait(Wait::kCompile, run.function);
    }
  }
  const MemoryGate::Pass pass = gate_.AskForRun(
      owner.index, run.run, **shape, owner.stream,
      [&](MemoryRequest& request) { RequestRun(owner.index, run, function->second, **shape, request); }, outbox);
  if (!pass.may_go) return owner.stream.MustWait(Wait::kMemory, run.run);
  return Dispatch(owner, run, {run.run, owner.index, run.function, *std::move(shape), message.arrival}, pass.entered,
                  message, outbox);
}

// --- programs

std::shared_ptr<const GangShape> Runs::ShapeOfProgram(const ProgramState& program) const {
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

Result<Outcome> Runs::Take(Client& owner, const wire::RunProgram& run, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(CheckRun(owner, run.run, run.first_output, run.output_count, run.arguments, run.assembled));
  PW_ASSIGN_OR_RETURN(ProgramState * named, ProgramOf(owner, run.program, run.first_key));
  if (named == nullptr) {
    return FailRun(owner, run, NotFound("program " + std::to_string(run.program) + " is not registered"), outbox);
  }
  ProgramState& program = *named;
  if (run.arguments.size() != program.inputs || run.output_count != program.outputs) {
    return FailRun(owner, run,
                   InvalidArgument("program " + Quoted(program.name) + " takes " + std::to_string(program.inputs) +
                                   " arguments and gives " + std::to_string(program.outputs) + " results, got " +
                                   std::to_string(run.arguments.size()) + " and " + std::to_string(run.output_count)),
                   outbox);
  }
  if (!program.failure.ok()) return FailRun(owner, run, program.failure, outbox);
  if (const Status* cause = owner.failed_outputs.FindAmong(run.arguments, run.assembled)) {
    return FailRun(owner, run, *cause, outbox);
  }
  if (program.pending > 0) return owner.stream.MustWait(Wait::kPlan, run.program);
  if (!program.shape) program.shape = ShapeOfProgram(program);
  const MemoryGate::Pass pass = gate_.AskForRun(
      owner.index, run.run, *program.shape, owner.stream,
      [&](MemoryRequest& request) { RequestProgram(owner.index, run, program, request); }, outbox);
  if (!pass.may_go) return owner.stream.MustWait(Wait::kMemory, run.run);
  return Dispatch(owner, run, {run.run, owner.index, run.program, program.shape, message.arrival}, pass.entered,
                  message, outbox);
}

Result<Outcome> Runs::Take(Client& owner, const wire::RunInPlace& run, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(CheckOwners(owner, run));
  PW_ASSIGN_OR_RETURN(ProgramState * named, ProgramOf(owner, run.program, run.first_key));
  if (named == nullptr) {
    return FailRun(owner, run, NotFound("program " + std::to_string(run.program) + " is not registered"), outbox);
  }
  ProgramState& program = *named;
  if (!program.failure.ok()) return FailRun(owner, run, program.failure, outbox);
  if (const Status* cause = owner.failed_outputs.FindAmong(run.arguments, run.assembled)) {
    return FailRun(owner, run, *cause, outbox);
  }
  if (program.pending > 0) return owner.stream.MustWait(Wait::kPlan, run.program);
  if (Status fits = program.places.Check(run); !fits.ok()) {
    return FailRun(owner, run, fits.WithPrefix("program " + Quoted(program.name)), outbox);
  }
  if (!program.shape) program.shape = ShapeOfProgram(program);
  std::optional<plan::Places> changed;  // taken over once the message goes on: it may come here several times
  if (run.previous == 0 || !run.places.empty()) {
    changed = program.places;
    changed->Apply(run);
  }
  const MemoryGate::Pass pass = gate_.AskForRun(
      owner.index, run.run, *program.shape, owner.stream,
      [&](MemoryRequest& request) {
        RequestInPlace(owner.index, run, program, changed ? *changed : program.places, request);
      },
      outbox);
  if (!pass.may_go) return owner.stream.MustWait(Wait::kMemory, run.run);
  const Outcome outcome = Dispatch(owner, run, {run.run, owner.index, run.program, program.shape, message.arrival},
                                   pass.entered, message, outbox);
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

template <typename Run>
Outcome Runs::Dispatch(Client& owner, const Run& run, const scheduler::Gang& gang, const MemoryRequest* entered,
                       Message& message, Outbox& outbox) {
  if (!owner.stream.is_granted(gang.run)) {
    Result<bool> granted = scheduler_.Ask(gang, outbox.now_ms());
    if (entered != nullptr && !(granted.ok() && *granted)) ledger_.Hold(*entered);
    if (!granted.ok()) {
      ledger_.Cancel(gang.client);
      return FailRun(owner, run, granted.status(), outbox);
    }
    if (!*granted) return owner.stream.MustWait(Wait::kTurn, gang.run);
  }
  owner.stream.Dispatched();
  if (entered != nullptr) {
    ledger_.Start(*entered);
  } else {
    ledger_.StartHeld(gang.client, gang.run);
  }
  const std::vector<GangPart>& parts = gang.shape->parts;
  wire::PatchSequence(message.frame, scheduler_.last_sequence());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Connection& to = hosts_[parts[i].host].connection;
    if (!arbitrates_) {
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

void Runs::LetGo(std::optional<uint32_t> client, Outbox& outbox) {
  if (arbitrates_) return;
  arrival_order_.Release(client, [&outbox](Outgoing message) { outbox.Pass(std::move(message)); });
}

// --- what hosts say of runs

void Runs::Done(uint32_t host, wire::Done done, std::string frame, Outbox& outbox) {
  // A client hears of a run once: of its first failure, or when its last host is done.
  std::vector<bool> tell;
  tell.reserve(done.outcomes.size());
  bool pass_on = true;
  for (const wire::RunOutcome& outcome : done.outcomes) {
    ledger_.PartDone(outcome.run, host, outcome.status.ok());
    const scheduler::PartResult result =
        scheduler_.PartDone(outcome.run, host, outcome.device_us, outcome.status.ok(), outbox.now_ms());
    tell.push_back(result == scheduler::PartResult::kEnded || result == scheduler::PartResult::kFailed);
    pass_on = pass_on && tell.back() && wire::ClientOf(outcome.run) == wire::ClientOf(done.outcomes.front().run);
  }
  if (done.outcomes.empty()) return;
  if (pass_on) {  // the usual case: the bytes as they are
    clients_.Tell(done.outcomes.front().run, std::move(frame), {}, outbox);
    return;
  }
  std::map<uint64_t, wire::Done> per_client;
  for (size_t i = 0; i < done.outcomes.size(); ++i) {
    if (!tell[i]) continue;
    const uint64_t client = wire::ClientOf(done.outcomes[i].run);
    per_client[client].outcomes.push_back(std::move(done.outcomes[i]));
  }
  for (const auto& [client, message] : per_client) {
    clients_.Tell(message.outcomes.front().run, wire::Encode(message), {}, outbox);
  }
}

// --- gangs over several hosts

void Runs::Abort(const wire::Abort& abort, std::optional<uint32_t> by, Outbox& outbox) {
  const scheduler::GangShape* shape = scheduler_.ShapeOf(abort.run);
  if (shape == nullptr) return;  // it has ended
  for (const scheduler::GangPart& part : shape->parts) {
    const Host& host = hosts_[part.host];
    if (part.host != by && host.alive()) outbox.Send(host.connection, abort);
  }
}

void Runs::Stalled(uint32_t host, wire::Stalled stalled, Outbox& outbox) {
  stalls_.Hear(host, std::move(stalled.stalls), outbox.now_ms());
  const Deadlock found = stalls_.Confirmed(
      outbox.now_ms(), [this](uint64_t run) { return scheduler_.ShapeOf(run); },
      [this](uint32_t index) { return hosts_[index].description.name; });
  if (found.runs.empty()) return;
  outbox.Note(found.reason);
  for (const uint64_t run : found.runs) Abort({run, Status(Code::kAborted, found.reason)}, std::nullopt, outbox);
}

// --- losses

void Runs::Forget(uint32_t host) {
  arrival_order_.DropHost(host);
  stalls_.Forget(host);
}

void Runs::FailOf(uint32_t host, const Status& status, Outbox& outbox) {
  // Clients know which hosts their runs on one host need; of gangs over several hosts they hear here.
  std::map<uint64_t, wire::Done> failed;
  for (const uint64_t run : scheduler_.HostLost(host, outbox.now_ms())) {
    failed[wire::ClientOf(run)].outcomes.push_back({run, host, 0, status});
  }
  for (const auto& [client_index, done] : failed) {
    clients_.Tell(done.outcomes.front().run, wire::Encode(done), {}, outbox);
  }
}

}  // namespace pathways::controller
