// Host: runs of single functions and of programs.
#include "csrc/sim/host_runs.h"

#include <algorithm>
#include <unordered_set>

namespace pathways::sim {
namespace {

// An input that is there, or whose maker a device has just been given too, says nothing new.
void AddInput(Fleet::Inputs& inputs, const std::shared_ptr<Value>& value) {
  if (value->settled() && value->error().ok()) return;
  if (!inputs.empty() && inputs.back() == value) return;
  inputs.push_back(value);
}

int64_t Bytes(const TensorType& type, const wire::Box& box) {
  if (box.whole()) return type.ByteSize();
  return TensorType{type.dtype, box.size}.ByteSize();
}

}  // namespace

// --- parts

void Host::Part::DeviceDone(uint32_t device, int64_t, int64_t busy_ns, const Status& error) {
  busy_[device - host_->first_device_] += busy_ns;
  Note(error);
  One();
}

void Host::Part::ExpectValue(Value& value) {
  ++left_;
  value.When([self = shared_from_this()](const Value& settled) {
    self->Note(settled.error());
    self->One();
  });
}

void Host::Part::Close(const Status& status) {
  Note(status);
  One();
}

void Host::Part::One() {
  if (--left_ == 0) host_->Report(run_, error_, *std::max_element(busy_.begin(), busy_.end()));
}

void Host::Report(uint64_t run, const Status& status, int64_t busy_ns) {
  if (!alive_) return;
  if (done_.outcomes.empty()) world_->news.push_back(this);
  done_.outcomes.push_back({run, index_, static_cast<uint64_t>(busy_ns / 1000), status});
}

void Host::FlushDone() {
  if (done_.outcomes.empty()) return;
  Send(done_);
  done_.outcomes.clear();
}

// --- one function

Launch Host::MakeLaunch(uint64_t run, uint64_t function_id, uint32_t occurrence, const Function& function) const {
  Launch launch;
  launch.id = {run, function_id, occurrence};
  launch.what = function.what;
  launch.client = static_cast<uint32_t>(wire::ClientOf(run));
  launch.program = function.trace_name;
  launch.node = function.trace_name;
  launch.cost_ns = function.cost_ns;
  launch.devices = function.meets ? function.devices : nullptr;
  return launch;
}

Status Host::CheckMemory(const std::vector<uint32_t>& devices, int64_t bytes, const std::string& what) const {
  for (const uint32_t device : devices) {
    PW_RETURN_IF_ERROR(Here(account_->Check(device - first_device_, bytes, 0, what)));
  }
  return OkStatus();
}

void Host::OnRun(const wire::Run& run) {
  auto it = functions_.find(run.function);
  Status status;
  if (it == functions_.end()) {
    status = Here(NotFound("function " + std::to_string(run.function) + " is not registered"));
  } else if (!it->second->ready) {
    status = Here(Internal("a run overtook the compile of its function"));
  } else {
    status = it->second->status.ok() ? Execute(run, *it->second) : it->second->status;
    if (!status.ok()) {
      world_->fleet.FailGang(MakeLaunch(run.run, run.function, 0, *it->second),
                             static_cast<uint32_t>(it->second->local_devices.size()), status);
    }
  }
  if (status.ok()) return;
  for (uint32_t k = 0; k < run.output_count; ++k) KeepFailed(run.first_output + k, status, false);
  Report(run.run, status, 0);
}

Status Host::Execute(const wire::Run& run, const Function& function) {
  std::vector<uint32_t> devices = function.local_devices;
  std::vector<uint32_t> numbers = function.local_numbers;
  if (function.request.one_device) {
    devices = run.devices;
    numbers = {0};
  }
  const bool matches = function.request.one_device ? run.devices.size() == 1 && IsLocal(run.devices[0])
                                                   : run.devices == *function.devices;
  if (!matches) return Here(InvalidArgument(*function.what + " must run on the devices it was compiled for"));
  if (run.arguments.size() != function.compiled->parameters.size()) {
    return Here(InvalidArgument(*function.what + " takes " + std::to_string(function.compiled->parameters.size()) +
                                " arguments, got " + std::to_string(run.arguments.size())));
  }
  std::vector<Fleet::Inputs> inputs(devices.size());
  const size_t row = run.devices.size() * 2;
  for (size_t position = 0; position < run.arguments.size(); ++position) {
    const uint64_t argument = run.arguments[position];
    const bool assembled = (argument & wire::kAssembledBit) != 0;
    const size_t base = (argument & ~wire::kAssembledBit) * row;
    if (assembled && (base > run.assembled.size() || run.assembled.size() - base < row)) {
      return Here(DataLoss("RUN names a row of assembled arguments that is not there"));
    }
    BufferPtr buffer;
    for (size_t i = 0; i < devices.size(); ++i) {
      const uint64_t id = assembled ? run.assembled[base + 2 * numbers[i]] : argument;
      const uint64_t number = assembled ? run.assembled[base + 2 * numbers[i] + 1] : numbers[i];
      if (assembled || buffer == nullptr) {
        PW_ASSIGN_OR_RETURN(buffer, FindBuffer(id));
      }
      PW_ASSIGN_OR_RETURN(const Shard* shard, FindShard(*buffer, static_cast<uint32_t>(number)));
      if (shard->device != devices[i]) {
        return Here(InvalidArgument("argument " + std::to_string(position) + " of " + *function.what +
                                    " is on device " + std::to_string(shard->device) + ", and is needed on device " +
                                    std::to_string(devices[i])));
      }
      AddInput(inputs[i], shard->value);
    }
  }
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size()) return Here(InvalidArgument("RUN gives up an argument that is not there"));
    const uint64_t argument = run.arguments[position];
    if (!(argument & wire::kAssembledBit)) {
      buffers_.erase(argument);
      continue;
    }
    for (size_t i = 0; i < row; i += 2) buffers_.erase(run.assembled[(argument & ~wire::kAssembledBit) * row + i]);
  }
  int64_t output_bytes = 0;
  for (const TensorType& type : function.compiled->outputs) output_bytes += type.ByteSize();
  PW_RETURN_IF_ERROR(CheckMemory(devices, output_bytes, *function.what));
  auto part = std::make_shared<Part>(this, run.run);
  part->Expect(devices.size());
  std::vector<std::shared_ptr<Value>> values;
  world_->fleet.Enqueue(MakeLaunch(run.run, run.function, 0, function), devices, std::move(inputs), part, &values);
  for (size_t k = 0; k < function.compiled->outputs.size() && k < run.output_count; ++k) {
    const int64_t bytes = function.compiled->outputs[k].ByteSize();
    BufferPtr buffer = MakeBuffer(run.run);
    for (size_t i = 0; i < devices.size(); ++i) buffer->Add({numbers[i], devices[i], bytes, values[i]});
    buffers_[run.first_output + k] = std::move(buffer);
  }
  part->Close(OkStatus());
  return OkStatus();
}

// --- programs

Status Host::StateOf(uint64_t program) const {
  auto it = programs_.find(program);
  if (it == programs_.end()) return Here(NotFound("program " + std::to_string(program) + " is not registered"));
  if (!it->second->ready) return Here(Internal("a run overtook the registration of its program"));
  return it->second->status;
}

void Host::OnRunProgram(const wire::RunProgram& run) {
  if (Status status = StateOf(run.program); !status.ok()) {
    for (uint32_t k = 0; k < run.output_count; ++k) KeepFailed(run.first_output + k, status, false);
    return Report(run.run, status, 0);
  }
  WalkProgram(*programs_.at(run.program), run, {});
}

void Host::OnRunInPlace(const wire::RunInPlace& message) {
  Status status = StateOf(message.program);
  if (status.ok()) status = Here(programs_.at(message.program)->places.Check(message));
  if (!status.ok()) {
    for (uint32_t k = 0; k < message.output_count; ++k) KeepFailed(message.first_output + k, status, false);
    for (size_t i = 0; i < message.after.size() && i < message.before.size(); ++i) {
      if (message.after[i] != message.before[i]) KeepFailed(message.after[i], status, false);
    }
    return Report(message.run, status, 0);
  }
  Program& program = *programs_.at(message.program);
  plan::FullRun full;
  program.places.Apply(message);
  program.places.Spell(message, full);
  WalkProgram(program, full.run, full.results);
}

void Host::WalkProgram(Program& program, const wire::RunProgram& run, std::span<const uint64_t> results) {
  program.last_runs.push_back(run.run);
  if (program.last_runs.size() > wire::kMaxTimedRuns) program.last_runs.pop_front();
  auto part = std::make_shared<Part>(this, run.run);
  runner_->backend.Begin(program, run, part);
  const Status status = runner_->walker.Walk(*program.plan, run, results, runner_->backend);
  runner_->backend.End(status);
  const std::unordered_set<uint64_t> kept(results.begin(), results.end());  // a run in place may make what it is given
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size()) continue;
    const uint64_t argument = run.arguments[position];
    if (!(argument & wire::kAssembledBit) && !kept.contains(argument)) buffers_.erase(argument);
  }
  part->Close(status);
}

void PlanBackend::Begin(const Host::Program& program, const wire::RunProgram& run, std::shared_ptr<Host::Part> part) {
  program_ = &program;
  run_ = &run;
  part_ = std::move(part);
  launched_.assign(program.plan->steps().size(), 0);
  last_error_ = OkStatus();
}

void PlanBackend::End(const Status& first_error) {
  const Status error = first_error.ok() ? last_error_ : first_error;
  for (size_t i = 0; i < launched_.size() && !error.ok(); ++i) {
    const wire::PlanStep& step = program_->plan->steps()[i];
    if (step.kind != wire::StepKind::kExecute || launched_[i]) continue;
    const Host::Function& function = *host_->functions_.at(step.function);
    host_->world_->fleet.FailGang(LaunchOf(i, function), static_cast<uint32_t>(function.local_devices.size()), error);
  }
  part_.reset();
}

Status PlanBackend::ErrorOf(const Value& value) {
  if (value == nullptr || value->error.ok()) return OkStatus();
  last_error_ = value->error;
  return value->error;
}

PlanBackend::Value PlanBackend::Failed(const Status& status) {
  last_error_ = status;
  return host_->FailedBuffer(status);
}

Result<PlanBackend::Value> PlanBackend::Argument(const plan::Plan& plan, const wire::RunProgram& run, size_t position,
                                                 bool) {
  const wire::PlanPort& port = plan.description().inputs[position];
  const wire::PlanSlot& slot = plan.slots()[port.slot];
  if (position >= run.arguments.size()) {
    return host_->Here(InvalidArgument("expected " + std::to_string(plan.description().inputs.size()) +
                                       " arguments of a program, got " + std::to_string(run.arguments.size())));
  }
  const uint64_t argument = run.arguments[position];
  const auto check = [&](const Host::Shard& shard, size_t i) {
    if (shard.device == slot.devices[i] && shard.bytes == slot.type.ByteSize()) return OkStatus();
    return host_->Here(InvalidArgument("argument " + std::to_string(position) + " of program '" +
                                       plan.description().name + "' must have " + slot.type.ToString() + " on device " +
                                       std::to_string(slot.devices[i]) + ", got " + std::to_string(shard.bytes) +
                                       " bytes on device " + std::to_string(shard.device)));
  };
  if (!(argument & wire::kAssembledBit)) {
    PW_ASSIGN_OR_RETURN(Value buffer, host_->FindBuffer(argument));
    bool same = buffer->shards.size() == slot.shards.size();
    for (size_t i = 0; i < slot.shards.size(); ++i) {
      PW_ASSIGN_OR_RETURN(const Host::Shard* shard, host_->FindShard(*buffer, slot.shards[i]));
      PW_RETURN_IF_ERROR(check(*shard, i));
      same = same && shard == &buffer->shards[i];
    }
    if (same) return buffer;
  }
  Value made = Empty(slot);
  const uint64_t base = (argument & ~wire::kAssembledBit);
  for (size_t i = 0; i < slot.shards.size(); ++i) {
    uint64_t id = argument, number = slot.shards[i];
    if (argument & wire::kAssembledBit) {
      const uint64_t at = base + 2 * number;
      if (at + 1 >= run.assembled.size()) return host_->Here(DataLoss("RUN_PROGRAM lacks assembled arguments"));
      id = run.assembled[at];
      number = run.assembled[at + 1];
    }
    PW_ASSIGN_OR_RETURN(Value buffer, host_->FindBuffer(id));
    PW_ASSIGN_OR_RETURN(const Host::Shard* shard, host_->FindShard(*buffer, static_cast<uint32_t>(number)));
    PW_RETURN_IF_ERROR(check(*shard, i));
    made->shards[i].value = shard->value;  // a view: its bytes stay accounted where they were
  }
  return made;
}

PlanBackend::Value PlanBackend::Empty(const wire::PlanSlot& slot) {
  Value buffer = host_->MakeBuffer(run_->run);
  for (size_t i = 0; i < slot.shards.size(); ++i)
    buffer->shards.push_back({slot.shards[i], slot.devices[i], 0, nullptr});
  return buffer;
}

Launch PlanBackend::LaunchOf(size_t step, const Host::Function& function) const {
  const wire::PlanStep& of = program_->plan->steps()[step];
  Launch launch = host_->MakeLaunch(run_->run, of.function, program_->occurrence[step], function);
  launch.program = program_->trace_name;
  if (of.node < program_->node_names.size()) launch.node = program_->node_names[of.node];
  return launch;
}

Status PlanBackend::Execute(const plan::Plan& plan, size_t index, std::span<const Value> arguments,
                            std::span<const char>, std::span<Value> results) {
  const wire::PlanStep& step = plan.steps()[index];
  const Host::Function& function = *host_->functions_.at(step.function);  // there, or the plan would not be ready
  std::vector<uint32_t> devices = function.local_devices;
  if (function.request.one_device && !step.results.empty()) devices = plan.slots()[step.results[0]].devices;
  std::vector<Fleet::Inputs> inputs(devices.size());
  for (size_t position = 0; position < arguments.size(); ++position) {
    const std::vector<Host::Shard>& shards = arguments[position]->shards;
    if (shards.size() != devices.size()) {
      return host_->Here(InvalidArgument(plan.Describe(step) + ": argument " + std::to_string(position) + " has " +
                                         std::to_string(shards.size()) + " shards on this host, expected " +
                                         std::to_string(devices.size())));
    }
    for (size_t i = 0; i < devices.size(); ++i) {
      if (shards[i].device != devices[i] || shards[i].value == nullptr) {
        return host_->Here(InvalidArgument(plan.Describe(step) + ": argument " + std::to_string(position) +
                                           " is not on device " + std::to_string(devices[i])));
      }
      AddInput(inputs[i], shards[i].value);
    }
  }
  int64_t bytes = 0;
  for (const uint32_t slot : step.results) bytes += plan.slots()[slot].type.ByteSize();
  PW_RETURN_IF_ERROR(host_->CheckMemory(devices, bytes, *function.what));
  part_->Expect(devices.size());
  std::vector<std::shared_ptr<sim::Value>> values;
  host_->world_->fleet.Enqueue(LaunchOf(index, function), devices, std::move(inputs), part_, &values);
  launched_[index] = 1;
  for (size_t k = 0; k < results.size(); ++k) {
    const wire::PlanSlot& slot = plan.slots()[step.results[k]];
    results[k] = host_->MakeBuffer(run_->run);
    for (size_t i = 0; i < devices.size(); ++i) {
      results[k]->Add({slot.shards[i], devices[i], slot.type.ByteSize(), values[i]});
    }
  }
  return OkStatus();
}

void PlanBackend::Send(const wire::PlanStep& step, const wire::PlanSlot& slot, const Value& value, uint64_t key) {
  const int64_t bytes = Bytes(slot.type, step.box);
  std::shared_ptr<sim::Value> source;
  if (Status error = ErrorOf(value); !error.ok()) {
    source = sim::Value::Settled(host_->world_->timeline.now(), std::move(error));
  } else if (value == nullptr || step.shard >= value->shards.size() || value->shards[step.shard].value == nullptr) {
    source =
        sim::Value::Settled(host_->world_->timeline.now(), host_->Here(Internal("a plan sends what is not there")));
  } else {
    source = value->shards[step.shard].value;
  }
  host_->world_->network.Send(host_->index_, step.host, key, bytes, source);
}

Status PlanBackend::Receive(const wire::PlanStep& step, const wire::PlanSlot& slot, Value& value, uint64_t first_key) {
  if (step.shard >= value->shards.size()) return host_->Here(InvalidArgument("a plan receives an unknown shard"));
  const int64_t bytes = slot.type.ByteSize();
  const uint32_t device = slot.devices[step.shard];
  PW_RETURN_IF_ERROR(host_->Here(host_->account_->Check(device - host_->first_device_, bytes, 0,
                                                        "a tensor " + slot.type.ToString() + " from another slice")));
  auto made = std::make_shared<sim::Value>();
  auto assembly = std::make_shared<Assembly>(made, step.pieces.size());
  for (const wire::PlanPiece& piece : step.pieces) {
    host_->world_->network.Receive(piece.host, host_->index_, first_key + piece.channel,
                                   [assembly](int64_t at, const Status& error) { assembly->PartCame(at, error); });
  }
  if (step.pieces.empty()) made->Settle(host_->world_->timeline.now());
  value->Fill(step.shard, bytes, std::move(made));
  return OkStatus();
}

Status PlanBackend::Copy(const wire::PlanStep& step, const Value& from, Value& to) {
  if (from == nullptr || step.source_shard >= from->shards.size() || step.shard >= to->shards.size()) {
    return host_->Here(InvalidArgument("a plan copies an unknown shard"));
  }
  const Host::Shard& source = from->shards[step.source_shard];
  Host::Shard& target = to->shards[step.shard];
  const int64_t bytes = program_->plan->slots()[step.results[0]].type.ByteSize();
  if (source.device == target.device) {
    target.value = source.value;  // the same bytes
  } else {
    to->Fill(step.shard, bytes, host_->CopyLocally(source.value, bytes));
  }
  return OkStatus();
}

void PlanBackend::Keep(size_t, uint64_t buffer, const Value& value) {
  if (value == nullptr)
    return host_->KeepFailed(buffer, host_->Here(Internal("a plan keeps what it never made")), false);
  for (const Host::Shard& shard : value->shards) {
    // What is computed for this run is counted already, what comes from elsewhere is not.
    if (shard.value != nullptr && !shard.value->settled() && !shard.value->computed()) part_->ExpectValue(*shard.value);
  }
  host_->buffers_[buffer] = value;
}

}  // namespace pathways::sim
