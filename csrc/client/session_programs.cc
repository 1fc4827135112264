// Session: programs, buffers of many shards, slices.
#include <algorithm>
#include <cstring>
#include <map>

#include "csrc/client/session_impl.h"

namespace pathways::client {

Program::Program(std::shared_ptr<Session> session, uint64_t id, ProgramSpec spec)
    : session_(std::move(session)),
      id_(id),
      spec_(std::move(spec)),
      description_(std::make_shared<const std::string>("program '" + spec_.name + "'" +
                                                       (spec_.source.empty() ? "" : " (" + spec_.source + ")"))) {}

Program::~Program() { session_->UnregisterProgram(id_); }

void Session::UnregisterProgram(uint64_t id) noexcept {
  std::lock_guard lock(impl_->mutex);
  impl_->programs.erase(id);
  if (!impl_->closed) impl_->programs_gone.push_back(id);
}

Result<std::shared_ptr<Program>> Session::RegisterProgram(ProgramSpec spec) {
  if (spec.plans.empty()) return InvalidArgument("expected a program with a plan for at least one host, got none");
  std::vector<uint32_t> hosts;
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->closed) return FailedPrecondition(impl_->LeftText());
    if (!impl_->controller_lost.ok()) return impl_->controller_lost;
    for (const wire::RegisterPlan& plan : spec.plans) {
      if (plan.host >= impl_->hosts.size()) {
        return InvalidArgument("expected a host below " + std::to_string(impl_->hosts.size()) + ", got " +
                               std::to_string(plan.host));
      }
      if (!impl_->hosts[plan.host].alive) return Unavailable(impl_->lost_reasons[plan.host]);
      if (std::find(hosts.begin(), hosts.end(), plan.host) != hosts.end()) {
        return InvalidArgument("expected one plan per host, got two for host " + std::to_string(plan.host));
      }
      hosts.push_back(plan.host);
      if (plan.inputs.size() != spec.inputs.size() || plan.outputs.size() != spec.outputs.size()) {
        return InvalidArgument("expected every plan to list the program's " + std::to_string(spec.inputs.size()) +
                               " inputs and " + std::to_string(spec.outputs.size()) + " outputs");
      }
    }
  }
  PW_RETURN_IF_ERROR(RegisterFunctionsOf(spec));
  const uint64_t id = impl_->MintIds();
  std::vector<wire::RegisterPlan> plans = std::move(spec.plans);
  spec.plans.clear();
  auto program = std::make_shared<Program>(shared_from_this(), id, std::move(spec));
  program->hosts_ = std::make_shared<const std::vector<uint32_t>>(hosts);
  {
    std::lock_guard lock(impl_->mutex);
    impl_->programs[id] = {program->ready_, {hosts.begin(), hosts.end()}, {}, program->description_};
  }
  impl_->FlushFrees();
  for (wire::RegisterPlan& plan : plans) {
    plan.program = id;
    plan.name = program->spec_.name;
    plan.source = program->spec_.source;
    for (size_t k = 0; k < plan.inputs.size(); ++k) {
      plan.inputs[k].shard_count = static_cast<uint32_t>(program->spec_.inputs[k].devices.size());
    }
    for (size_t k = 0; k < plan.outputs.size(); ++k) {
      plan.outputs[k].shard_count = static_cast<uint32_t>(program->spec_.outputs[k].devices.size());
    }
    program->channels_ = std::max(program->channels_, plan.channels);
    PW_RETURN_IF_ERROR(impl_->Send(plan));
  }
  return program;
}

// A function of one device is registered on a host when it is first used there.
Status Session::RegisterFunctionsOf(const ProgramSpec& spec) {
  std::map<uint64_t, Function*> one_device;
  for (const std::shared_ptr<Function>& function : spec.functions) {
    if (function->spec().one_device) one_device[function->id()] = function.get();
  }
  for (const wire::RegisterPlan& plan : spec.plans) {
    std::set<uint64_t> seen;
    for (const wire::PlanStep& step : plan.steps) {
      if (step.kind != wire::StepKind::kExecute || !seen.insert(step.function).second) continue;
      auto function = one_device.find(step.function);
      if (function == one_device.end()) continue;
      uint32_t device;
      {
        std::lock_guard lock(impl_->mutex);
        device = impl_->hosts[plan.host].first_device;
      }
      PW_RETURN_IF_ERROR(EnsureRegistered(*function->second, device));
    }
  }
  return OkStatus();
}

Result<uint64_t> Session::ArgumentId(const Program& program, size_t position, const ProgramArgument& argument,
                                     std::vector<uint64_t>& assembled) const {
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument(*program.description_ + ", argument " + std::to_string(position) + ": " + why);
  };
  if (position >= program.spec().inputs.size()) return wrong("there is no such argument");
  const Port& port = program.spec().inputs[position];
  const auto check = [&](const LogicalBuffer& buffer) -> Status {
    if (buffer.session().get() != this) return wrong("it belongs to another session");
    if (const Status held = buffer.CheckHeld(); !held.ok()) {
      return held.WithPrefix(*program.description_ + ", argument " + std::to_string(position));
    }
    if (buffer.shard_type() != port.shard_type) {
      return wrong("expected shards of " + port.shard_type.ToString() + ", got " + buffer.shard_type().ToString());
    }
    return OkStatus();
  };
  if (argument.buffer) {
    PW_RETURN_IF_ERROR(check(*argument.buffer));
    if (argument.buffer->devices() != port.devices) {
      return wrong("its shards are on other devices than the program expects them");
    }
    return argument.buffer->id();
  }
  if (argument.shards.size() != port.devices.size()) {
    return wrong("expected " + std::to_string(port.devices.size()) + " shards, got " +
                 std::to_string(argument.shards.size()));
  }
  const uint64_t id = wire::kAssembledBit | assembled.size();
  for (size_t i = 0; i < argument.shards.size(); ++i) {
    const Shard& shard = argument.shards[i];
    PW_RETURN_IF_ERROR(check(*shard.buffer));
    if (shard.device() != port.devices[i]) {
      return wrong("expected shard " + std::to_string(i) + " on device " + std::to_string(port.devices[i]) +
                   ", got it on device " + std::to_string(shard.device()));
    }
    assembled.push_back(shard.buffer->id());
    assembled.push_back(shard.index);
  }
  return id;
}

Status Session::CheckReach(const Program& program) const {
  std::lock_guard lock(impl_->mutex);
  if (impl_->closed) return FailedPrecondition(impl_->LeftText());
  if (!impl_->controller_lost.ok()) return impl_->controller_lost;
  for (uint32_t host : *program.hosts_) {
    if (!impl_->hosts[host].alive) {
      return Unavailable(impl_->lost_reasons[host]).WithPrefix(*program.description_ + " cannot run");
    }
  }
  return OkStatus();
}

Result<RunResult> Session::RunProgram(const std::shared_ptr<Program>& program,
                                      std::span<const ProgramArgument> arguments, std::span<const uint32_t> donated) {
  const ProgramSpec& spec = program->spec();
  if (arguments.size() != spec.inputs.size()) {
    return InvalidArgument(*program->description_ + ": expected " + std::to_string(spec.inputs.size()) +
                           " arguments, got " + std::to_string(arguments.size()));
  }
  wire::RunProgram run;
  run.arguments.reserve(arguments.size());
  for (size_t position = 0; position < arguments.size(); ++position) {
    PW_ASSIGN_OR_RETURN(uint64_t id, ArgumentId(*program, position, arguments[position], run.assembled));
    run.arguments.push_back(id);
  }
  for (uint32_t position : donated) {
    if (position >= arguments.size()) return InvalidArgument("there is no argument " + std::to_string(position));
    run.donated.push_back(position);
  }
  PW_RETURN_IF_ERROR(CheckReach(*program));
  run.program = program->id();
  run.run = impl_->MintIds();
  run.output_count = static_cast<uint32_t>(spec.outputs.size());
  run.first_output = impl_->MintIds(std::max<uint32_t>(run.output_count, 1));
  run.first_key = impl_->MintIds(std::max<uint32_t>(program->channels_, 1));
  RunResult result;
  result.done = Event::Make();
  Impl::PendingRun pending{result.done, program->hosts_->front(), program->description_};
  pending.hosts = program->hosts_;
  impl_->EnterRun(run.run, std::move(pending));
  result.outputs.reserve(spec.outputs.size());
  for (size_t k = 0; k < spec.outputs.size(); ++k) {
    result.outputs.push_back(std::make_shared<LogicalBuffer>(
        shared_from_this(), run.first_output + k, spec.outputs[k].devices, spec.outputs[k].shard_type, result.done));
  }
  impl_->run_count += 1;
  impl_->FlushLargeFrees();
  Status status = impl_->Send(run);
  if (!status.ok()) {
    impl_->LeaveRun(run.run);
    result.done->Set(status);
    return status;
  }
  for (uint32_t position : donated) {
    if (arguments[position].buffer) arguments[position].buffer->GiveUp();
    for (const Shard& shard : arguments[position].shards) shard.buffer->GiveUp();
  }
  return result;
}

void Session::AwaitWindow() {
  std::unique_lock lock(impl_->mutex);
  impl_->WaitForRoom(lock, kRunsAhead, [&] {
    return impl_->runs.size() < impl_->options.window_runs || impl_->closed || !impl_->controller_lost.ok();
  });
}

Result<InPlaceResult> Session::RunInPlace(const std::shared_ptr<Program>& program, const InPlaceArguments& arguments) {
  const ProgramSpec& spec = program->spec();
  wire::RunInPlace run;
  run.program = program->id();
  run.previous = arguments.previous;
  run.argument_places = arguments.argument_places;
  run.result_places = arguments.result_places;
  InPlaceResult result;
  const uint64_t first_placed = arguments.changes.empty() ? 0 : impl_->MintIds(arguments.changes.size());
  for (size_t i = 0; i < arguments.changes.size(); ++i) {
    const InPlaceArguments::Change& change = arguments.changes[i];
    uint64_t before = 0;
    if (change.before) {
      PW_ASSIGN_OR_RETURN(before, ArgumentId(*program, change.position, *change.before, run.assembled));
    }
    result.placed.push_back(change.written ? first_placed + i : before);
    run.places.push_back(change.place);
    run.before.push_back(before);
  }
  run.after = result.placed;
  for (const InPlaceArguments::Argument& argument : arguments.arguments) {
    PW_ASSIGN_OR_RETURN(uint64_t id, ArgumentId(*program, argument.position, argument.value, run.assembled));
    run.arguments.push_back(id);
  }
  run.donated = arguments.donated;
  PW_RETURN_IF_ERROR(CheckReach(*program));
  run.run = result.run = impl_->MintIds();
  run.output_count = static_cast<uint32_t>(arguments.results.size());
  run.first_output = impl_->MintIds(std::max<uint32_t>(run.output_count, 1));
  run.first_key = impl_->MintIds(std::max<uint32_t>(program->channels_, 1));
  result.done = Event::Make();
  {
    Impl::PendingRun pending{result.done, program->hosts_->front(), program->description_};
    pending.hosts = program->hosts_;
    std::lock_guard lock(impl_->mutex);
    impl_->runs[run.run] = std::move(pending);
  }
  for (size_t k = 0; k < arguments.results.size(); ++k) {
    const Port& port = spec.outputs[arguments.results[k]];
    result.outputs.push_back(std::make_shared<LogicalBuffer>(shared_from_this(), run.first_output + k, port.devices,
                                                             port.shard_type, result.done));
  }
  impl_->run_count += 1;
  impl_->FlushLargeFrees();
  if (Status status = impl_->Send(run); !status.ok()) {
    impl_->LeaveRun(run.run);
    result.done->Set(status);
    return status;
  }
  const auto give_up = [&](const ProgramArgument& argument) {
    if (argument.buffer) argument.buffer->GiveUp();
    for (const Shard& shard : argument.shards) shard.buffer->GiveUp();
  };
  std::vector<char> donated(spec.inputs.size(), 0);
  for (const uint32_t position : arguments.donated) donated[position] = 1;
  for (const InPlaceArguments::Change& change : arguments.changes) {
    if (change.before && donated[change.position]) give_up(*change.before);
  }
  for (const InPlaceArguments::Argument& argument : arguments.arguments) {
    if (donated[argument.position]) give_up(argument.value);
  }
  return result;
}

void Session::Impl::OnPlanReady(const wire::PlanReady& answer) {
  std::shared_ptr<Event> event;
  Status status;
  {
    std::lock_guard lock(mutex);
    auto it = programs.find(answer.program);
    if (it == programs.end()) return;
    PendingProgram& program = it->second;
    program.waiting_for.erase(answer.host);
    if (!answer.status.ok() && program.first_error.ok()) program.first_error = answer.status;
    if (!program.waiting_for.empty() && program.first_error.ok()) return;
    event = program.ready;
    status = program.first_error;
  }
  event->Set(status);
}

// --- buffers of many shards

Result<std::shared_ptr<LogicalBuffer>> Session::PutSharded(const std::vector<uint32_t>& devices, const TensorType& type,
                                                           std::span<const void* const> data) {
  if (devices.size() != data.size()) {
    return InvalidArgument("expected one value for each device, got " + std::to_string(data.size()) + " values for " +
                           std::to_string(devices.size()) + " devices");
  }
  // Replicas are copied once.
  std::shared_ptr<HostMemory> copy;
  const void* copied = nullptr;
  return impl_->SendPuts(shared_from_this(), devices, type, [&](size_t shard, uint32_t host, wire::Put& put) -> Status {
    const size_t size = static_cast<size_t>(type.ByteSize());
    if (size <= wire::kMaxInlineBytes) {
      put.inline_data.assign(static_cast<const char*>(data[shard]), size);
      PW_RETURN_IF_ERROR(impl_->Send(put));
      impl_->uploaded += size;
      return OkStatus();
    }
    PW_RETURN_IF_ERROR(impl_->Send(put));
    if (copy == nullptr || data[shard] != copied) copy = impl_->upload_memory->Copy(data[shard], size);
    copied = data[shard];
    return impl_->Upload(put.key, host, copy);
  });
}

Result<std::shared_ptr<LogicalBuffer>> Session::Announce(const std::vector<uint32_t>& devices, const TensorType& type) {
  return impl_->SendPuts(shared_from_this(), devices, type,
                         [this](size_t, uint32_t, wire::Put& put) { return impl_->Send(put); });
}

Result<std::shared_ptr<LogicalBuffer>> Session::Impl::SendPuts(
    const std::shared_ptr<Session>& session, const std::vector<uint32_t>& devices, const TensorType& type,
    const std::function<Status(size_t shard, uint32_t host, wire::Put& put)>& send) {
  PW_RETURN_IF_ERROR(type.Validate());
  if (devices.empty()) return InvalidArgument("expected at least one device for a buffer, got none");
  std::vector<uint32_t> hosts_of_shards;
  std::map<uint32_t, uint32_t> shards_of_host;
  for (uint32_t device : devices) {
    PW_ASSIGN_OR_RETURN(uint32_t host, HostOf(device));
    hosts_of_shards.push_back(host);
    ++shards_of_host[host];
  }
  const uint64_t id = MintIds(devices.size());
  auto buffer = std::make_shared<LogicalBuffer>(session, id, devices, type, nullptr);
  FlushFrees();  // what was dropped before makes room for this
  for (size_t i = 0; i < devices.size(); ++i) {
    wire::Put put;
    put.buffer = id;
    put.key = id + i;
    put.shard = static_cast<uint32_t>(i);
    put.shards_here = shards_of_host[hosts_of_shards[i]];
    put.device = devices[i];
    put.type = type;
    PW_RETURN_IF_ERROR(send(i, hosts_of_shards[i], put));
  }
  return buffer;
}

// --- slices

Result<Slice> Session::RequestSlice(const SliceRequest& request, std::chrono::milliseconds timeout) {
  wire::RequestSlice message;
  message.request = impl_->MintIds();
  message.device_count = request.device_count;
  message.island = request.island;
  message.platform = request.platform;
  message.min_memory_bytes = request.min_memory_bytes;
  message.hosts = request.hosts;
  message.among = request.among;
  auto slice = std::make_shared<Slice>();
  auto event = Event::Make();
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->closed) return FailedPrecondition(impl_->LeftText());
    if (!impl_->controller_lost.ok()) return impl_->controller_lost;
    impl_->slices[message.request] = {event, slice};
  }
  PW_RETURN_IF_ERROR(impl_->Send(message));
  std::optional<Status> status = event->WaitFor(timeout);
  if (!status) {
    std::lock_guard lock(impl_->mutex);
    impl_->slices.erase(message.request);
    return DeadlineExceeded("expected the controller at " + impl_->options.controller +
                            " to answer a request for a slice within " + std::to_string(timeout.count()) +
                            " ms, got nothing");
  }
  PW_RETURN_IF_ERROR(*status);
  return *slice;
}

void Session::Impl::OnSliceGranted(const wire::SliceGranted& answer) {
  std::shared_ptr<Event> event;
  {
    std::lock_guard lock(mutex);
    auto node = slices.extract(answer.request);
    if (node.empty()) return;
    *node.mapped().slice = {answer.slice, answer.devices};
    event = node.mapped().done;
  }
  event->Set(answer.status);
}

void Session::ReleaseSlice(uint64_t slice) noexcept {
  if (!impl_->closed) (void)impl_->Send(wire::ReleaseSlice{{slice}});  // a lost controller has forgotten it anyway
}

}  // namespace pathways::client
