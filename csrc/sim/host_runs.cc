#include "csrc/sim/host_runs.h"

#include <algorithm>
#include <unordered_set>

#include "csrc/wire/times_bodies.h"

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

// --- what is told

void DoneReport::Add(uint64_t run, const Status& status, int64_t busy_ns) {
  if (!site_.alive) return;
  if (done_.outcomes.empty()) site_.world.news.push_back(this);
  done_.outcomes.push_back({run, site_.index, static_cast<uint64_t>(busy_ns / 1000), status});
}

void DoneReport::Flush() {
  if (done_.outcomes.empty()) return;
  site_.Send(done_);
  done_.outcomes.clear();
}

std::vector<std::shared_ptr<Value>> RunShare::Enqueue(const Launch& launch, const std::vector<uint32_t>& devices,
                                                      std::vector<Fleet::Inputs> inputs) {
  left_ += devices.size();
  std::vector<std::shared_ptr<Value>> values;
  site_.world.fleet.Enqueue(launch, devices, std::move(inputs), shared_from_this(), &values);
  return values;
}

void RunShare::DeviceDone(uint32_t device, int64_t, int64_t busy_ns, const Status& error) {
  busy_[device - site_.first_device] += busy_ns;
  EndOne(error);
}

void RunShare::ExpectValue(Value& value) {
  ++left_;
  value.When([self = shared_from_this()](const Value& settled) { self->EndOne(settled.error()); });
}

void RunShare::EndOne(const Status& error) {
  if (error_.ok()) error_ = error;
  if (--left_ == 0) report_.Add(run_, error_, *std::max_element(busy_.begin(), busy_.end()));
}

// --- one function

template <typename Message>
void HostRuns::Fail(const Message& run, const Status& status) {
  for (uint32_t k = 0; k < run.output_count; ++k) buffers_.KeepFailed(run.first_output + k, status, false);
  report_.Add(run.run, status, 0);
}

void HostRuns::On(const wire::Run& run) {
  const Function* function = programs_.FindFunction(run.function);
  Status status;
  if (function == nullptr) {
    status = site_.Here(NotFound("function " + std::to_string(run.function) + " is not registered"));
  } else if (!function->ready) {
    status = site_.Here(Internal("a run overtook the compile of its function"));
  } else {
    status = function->status.ok() ? Execute(run, *function) : function->status;
    if (!status.ok()) {
      site_.world.fleet.FailGang(function->MakeLaunch(run.run, 0),
                                 static_cast<uint32_t>(function->local_devices.size()), status);
    }
  }
  if (!status.ok()) Fail(run, status);
}

Status HostRuns::Execute(const wire::Run& run, const Function& function) {
  std::vector<uint32_t> devices = function.local_devices;
  std::vector<uint32_t> numbers = function.local_numbers;
  if (function.request.one_device) {
    devices = run.devices;
    numbers = {0};
  }
  const bool matches = function.request.one_device ? run.devices.size() == 1 && site_.IsLocal(run.devices[0])
                                                   : run.devices == *function.devices;
  if (!matches) return site_.Invalid(*function.what + " must run on the devices it was compiled for");
  if (run.arguments.size() != function.compiled->parameters.size()) {
    return site_.Invalid(*function.what + " takes " + std::to_string(function.compiled->parameters.size()) +
                         " arguments, got " + std::to_string(run.arguments.size()));
  }
  std::vector<Fleet::Inputs> inputs(devices.size());
  const size_t row = run.devices.size() * 2;
  for (size_t position = 0; position < run.arguments.size(); ++position) {
    const uint64_t argument = run.arguments[position];
    const bool assembled = (argument & wire::kAssembledBit) != 0;
    const size_t base = (argument & ~wire::kAssembledBit) * row;
    if (assembled && (base > run.assembled.size() || run.assembled.size() - base < row)) {
      return site_.Here(DataLoss("RUN names a row of assembled arguments that is not there"));
    }
    BufferPtr buffer;
    for (size_t i = 0; i < devices.size(); ++i) {
      const uint64_t id = assembled ? run.assembled[base + 2 * numbers[i]] : argument;
      const uint64_t number = assembled ? run.assembled[base + 2 * numbers[i] + 1] : numbers[i];
      if (assembled || buffer == nullptr) {
        PW_ASSIGN_OR_RETURN(buffer, buffers_.Find(id));
      }
      PW_ASSIGN_OR_RETURN(const Shard* shard, buffers_.FindShard(*buffer, static_cast<uint32_t>(number)));
      if (shard->device != devices[i]) {
        return site_.Invalid("argument " + std::to_string(position) + " of " + *function.what + " is on device " +
                             std::to_string(shard->device) + ", and is needed on device " + std::to_string(devices[i]));
      }
      AddInput(inputs[i], shard->value);
    }
  }
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size()) return site_.Invalid("RUN gives up an argument that is not there");
    const uint64_t argument = run.arguments[position];
    if (!(argument & wire::kAssembledBit)) {
      buffers_.Erase(argument);
      continue;
    }
    for (size_t i = 0; i < row; i += 2) buffers_.Erase(run.assembled[(argument & ~wire::kAssembledBit) * row + i]);
  }
  int64_t output_bytes = 0;
  for (const TensorType& type : function.compiled->outputs) output_bytes += type.ByteSize();
  for (const uint32_t device : devices) PW_RETURN_IF_ERROR(site_.CheckMemory(device, output_bytes, *function.what));
  auto share = std::make_shared<RunShare>(site_, report_, run.run);
  const auto values = share->Enqueue(function.MakeLaunch(run.run, 0), devices, std::move(inputs));
  for (size_t k = 0; k < function.compiled->outputs.size() && k < run.output_count; ++k) {
    const int64_t bytes = function.compiled->outputs[k].ByteSize();
    BufferPtr buffer = buffers_.Make(run.run);
    for (size_t i = 0; i < devices.size(); ++i) buffer->Add({numbers[i], devices[i], bytes, values[i]});
    buffers_.Keep(run.first_output + k, std::move(buffer));
  }
  share->Close(OkStatus());
  return OkStatus();
}

// --- programs

void HostRuns::On(const wire::RunProgram& run) {
  const Result<Program*> program = programs_.FindProgram(run.program);
  if (!program.ok()) return Fail(run, program.status());
  Walk(**program, run, {});
}

void HostRuns::On(const wire::RunInPlace& message) {
  const Result<Program*> program = programs_.FindProgram(message.program);
  const Status status = program.ok() ? site_.Here((*program)->places.Check(message)) : program.status();
  if (!status.ok()) {
    for (size_t i = 0; i < message.after.size() && i < message.before.size(); ++i) {
      if (message.after[i] != message.before[i]) buffers_.KeepFailed(message.after[i], status, false);
    }
    return Fail(message, status);
  }
  plan::FullRun full;
  (*program)->places.Apply(message);
  (*program)->places.Spell(message, full);
  Walk(**program, full.run, full.results);
}

void HostRuns::Walk(Program& program, const wire::RunProgram& run, std::span<const uint64_t> results) {
  program.last_runs.push_back(run.run);
  if (program.last_runs.size() > wire::kMaxTimedRuns) program.last_runs.pop_front();
  auto share = std::make_shared<RunShare>(site_, report_, run.run);
  backend_.Begin(program, run, share);
  const Status status = walker_.Walk(*program.plan, run, results, backend_);
  backend_.End(status);
  const std::unordered_set<uint64_t> kept(results.begin(), results.end());  // a run in place may make what it is given
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size()) continue;
    const uint64_t argument = run.arguments[position];
    if (!(argument & wire::kAssembledBit) && !kept.contains(argument)) buffers_.Erase(argument);
  }
  share->Close(status);
}

// --- what plan::Walker asks for

void PlanBackend::Begin(const Program& program, const wire::RunProgram& run, std::shared_ptr<RunShare> share) {
  program_ = &program;
  run_ = &run;
  share_ = std::move(share);
  launched_.assign(program.plan->steps().size(), 0);
  last_error_ = OkStatus();
}

void PlanBackend::End(const Status& first_error) {
  const Status error = first_error.ok() ? last_error_ : first_error;
  for (size_t i = 0; i < launched_.size() && !error.ok(); ++i) {
    const wire::PlanStep& step = program_->plan->steps()[i];
    if (step.kind != wire::StepKind::kExecute || launched_[i]) continue;
    const Function& function = programs_.FunctionOf(step);
    site_.world.fleet.FailGang(LaunchOf(i, function), static_cast<uint32_t>(function.local_devices.size()), error);
  }
  share_.reset();
}

Status PlanBackend::ErrorOf(const Value& value) {
  if (value == nullptr || value->error.ok()) return OkStatus();
  last_error_ = value->error;
  return value->error;
}

PlanBackend::Value PlanBackend::Failed(const Status& status) {
  last_error_ = status;
  return buffers_.MakeFailed(status);
}

Result<PlanBackend::Value> PlanBackend::Argument(const plan::Plan& plan, const wire::RunProgram& run, size_t position,
                                                 bool) {
  const wire::PlanPort& port = plan.description().inputs[position];
  const wire::PlanSlot& slot = plan.slots()[port.slot];
  if (position >= run.arguments.size()) {
    return site_.Invalid("expected " + std::to_string(plan.description().inputs.size()) +
                         " arguments of a program, got " + std::to_string(run.arguments.size()));
  }
  const uint64_t argument = run.arguments[position];
  const auto check = [&](const Shard& shard, size_t i) {
    if (shard.device == slot.devices[i] && shard.bytes == slot.type.ByteSize()) return OkStatus();
    return site_.Invalid("argument " + std::to_string(position) + " of program '" + plan.description().name +
                         "' must have " + slot.type.ToString() + " on device " + std::to_string(slot.devices[i]) +
                         ", got " + std::to_string(shard.bytes) + " bytes on device " + std::to_string(shard.device));
  };
  if (!(argument & wire::kAssembledBit)) {
    PW_ASSIGN_OR_RETURN(Value buffer, buffers_.Find(argument));
    bool same = buffer->shards.size() == slot.shards.size();
    for (size_t i = 0; i < slot.shards.size(); ++i) {
      PW_ASSIGN_OR_RETURN(const Shard* shard, buffers_.FindShard(*buffer, slot.shards[i]));
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
      if (at + 1 >= run.assembled.size()) return site_.Here(DataLoss("RUN_PROGRAM lacks assembled arguments"));
      id = run.assembled[at];
      number = run.assembled[at + 1];
    }
    PW_ASSIGN_OR_RETURN(Value buffer, buffers_.Find(id));
    PW_ASSIGN_OR_RETURN(const Shard* shard, buffers_.FindShard(*buffer, static_cast<uint32_t>(number)));
    PW_RETURN_IF_ERROR(check(*shard, i));
    made->shards[i].value = shard->value;  // a view: its bytes stay accounted where they were
  }
  return made;
}

PlanBackend::Value PlanBackend::Empty(const wire::PlanSlot& slot) {
  Value buffer = buffers_.Make(run_->run);
  for (size_t i = 0; i < slot.shards.size(); ++i) {
    buffer->shards.push_back({slot.shards[i], slot.devices[i], 0, nullptr});
  }
  return buffer;
}

Launch PlanBackend::LaunchOf(size_t step, const Function& function) const {
  const wire::PlanStep& of = program_->plan->steps()[step];
  Launch launch = function.MakeLaunch(run_->run, program_->occurrence[step]);
  launch.program = program_->trace_name;
  if (of.node < program_->node_names.size()) launch.node = program_->node_names[of.node];
  return launch;
}

Status PlanBackend::Execute(const plan::Plan& plan, size_t index, std::span<const Value> arguments,
                            std::span<const char>, std::span<Value> results) {
  const wire::PlanStep& step = plan.steps()[index];
  const Function& function = programs_.FunctionOf(step);
  std::vector<uint32_t> devices = function.local_devices;
  if (function.request.one_device && !step.results.empty()) devices = plan.slots()[step.results[0]].devices;
  std::vector<Fleet::Inputs> inputs(devices.size());
  for (size_t position = 0; position < arguments.size(); ++position) {
    const std::vector<Shard>& shards = arguments[position]->shards;
    if (shards.size() != devices.size()) {
      return site_.Invalid(plan.Describe(step) + ": argument " + std::to_string(position) + " has " +
                           std::to_string(shards.size()) + " shards on this host, expected " +
                           std::to_string(devices.size()));
    }
    for (size_t i = 0; i < devices.size(); ++i) {
      if (shards[i].device != devices[i] || shards[i].value == nullptr) {
        return site_.Invalid(plan.Describe(step) + ": argument " + std::to_string(position) + " is not on device " +
                             std::to_string(devices[i]));
      }
      AddInput(inputs[i], shards[i].value);
    }
  }
  int64_t bytes = 0;
  for (const uint32_t slot : step.results) bytes += plan.slots()[slot].type.ByteSize();
  for (const uint32_t device : devices) PW_RETURN_IF_ERROR(site_.CheckMemory(device, bytes, *function.what));
  const auto values = share_->Enqueue(LaunchOf(index, function), devices, std::move(inputs));
  launched_[index] = 1;
  for (size_t k = 0; k < results.size(); ++k) {
    const wire::PlanSlot& slot = plan.slots()[step.results[k]];
    results[k] = buffers_.Make(run_->run);
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
    source = sim::Value::Settled(site_.world.timeline.now(), std::move(error));
  } else if (value == nullptr || step.shard >= value->shards.size() || value->shards[step.shard].value == nullptr) {
    source = sim::Value::Settled(site_.world.timeline.now(), site_.Here(Internal("a plan sends what is not there")));
  } else {
    source = value->shards[step.shard].value;
  }
  site_.world.network.Send(site_.index, step.host, key, bytes, source);
}

Status PlanBackend::Receive(const wire::PlanStep& step, const wire::PlanSlot& slot, Value& value, uint64_t first_key) {
  if (step.shard >= value->shards.size()) return site_.Invalid("a plan receives an unknown shard");
  const int64_t bytes = slot.type.ByteSize();
  const uint32_t device = slot.devices[step.shard];
  PW_RETURN_IF_ERROR(site_.CheckMemory(device, bytes, "a tensor " + slot.type.ToString() + " from another slice"));
  auto made = std::make_shared<sim::Value>();
  auto assembly = std::make_shared<Assembly>(made, step.pieces.size());
  for (const wire::PlanPiece& piece : step.pieces) {
    site_.world.network.Receive(piece.host, site_.index, first_key + piece.channel,
                                [assembly](int64_t at, const Status& error) { assembly->PartCame(at, error); });
  }
  if (step.pieces.empty()) made->Settle(site_.world.timeline.now());
  value->Fill(step.shard, bytes, std::move(made));
  return OkStatus();
}

Status PlanBackend::Copy(const wire::PlanStep& step, const Value& from, Value& to) {
  if (from == nullptr || step.source_shard >= from->shards.size() || step.shard >= to->shards.size()) {
    return site_.Invalid("a plan copies an unknown shard");
  }
  const Shard& source = from->shards[step.source_shard];
  Shard& target = to->shards[step.shard];
  const int64_t bytes = program_->plan->slots()[step.results[0]].type.ByteSize();
  if (source.device == target.device) {
    target.value = source.value;  // the same bytes
  } else {
    to->Fill(step.shard, bytes, buffers_.CopyLocally(source.value, bytes));
  }
  return OkStatus();
}

void PlanBackend::Keep(size_t, uint64_t buffer, const Value& value) {
  if (value == nullptr) {
    return buffers_.KeepFailed(buffer, site_.Here(Internal("a plan keeps what it never made")), false);
  }
  for (const Shard& shard : value->shards) {
    // What is computed for this run is counted already, what comes from elsewhere is not.
    const sim::Value* const made = shard.value.get();
    if (made != nullptr && !made->settled() && !made->computed()) share_->ExpectValue(*shard.value);
  }
  buffers_.Keep(buffer, value);
}

}  // namespace pathways::sim
