#include "csrc/worker/runs.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "csrc/worker/known_values.h"

namespace pathways::worker {

bool Runs::MustWait(const wire::Run& run) {
  if (launcher_.IsFull(run.devices)) return true;
  if (context_.hands_errors_on()) return false;
  const std::shared_ptr<Function>& function = functions_.Find(run.function);
  const bool spans_hosts = function != nullptr && function->places != nullptr;
  const auto missing = [&](uint64_t id) {
    const std::shared_ptr<store::Object> object = context_.store().Find(id);
    return object != nullptr && launcher_.MustArrive(*object, spans_hosts);
  };
  for (const uint64_t argument : run.arguments) {
    if ((argument & wire::kAssembledBit) == 0 && missing(argument)) return true;
  }
  for (size_t i = 0; i < run.assembled.size(); i += 2) {
    if (missing(run.assembled[i])) return true;
  }
  return false;
}

void Runs::Start(const wire::Run& run, uint64_t sequence) {
  const std::shared_ptr<Function>& function = functions_.Find(run.function);
  Status status;
  if (function == nullptr) {
    status = context_.Here(NotFound("function " + std::to_string(run.function) + " is not registered"));
  } else if (!function->status.ok()) {
    status = function->status;
  } else if (!function->computation) {
    status = context_.Here(Internal("a run overtook the compile of its function"));
  } else {
    status = Execute(run, sequence, *function);
  }
  if (!status.ok()) {
    RemoveDonated(run);
    if (cluster_.PlacesOf(run.devices, context_.number())) gangs_.AbortElsewhere(run.run, status);
    std::vector<uint64_t> results(run.output_count);
    std::iota(results.begin(), results.end(), run.first_output);
    completions_.Poison(run.run, results, status);
  }
  held_.clear();
}

Status Runs::Execute(const wire::Run& run, uint64_t sequence, const Function& function) {
  PW_RETURN_IF_ERROR(GatherArguments(run, function));
  PW_RETURN_IF_ERROR(CheckMemory(run, function));
  Launcher::Launch launch{.run = run.run, .id = {sequence, 0}};
  if (function.request.one_device) {
    PW_ASSIGN_OR_RETURN(launch.device, context_.LocalDevice(run.devices[0]));
  }
  const auto started = Clock::now();  // small computations run inside the launch
  const Status status = launcher_.Enqueue(function, launch);
  // Given up whatever the outcome: the plugin has taken them.
  RemoveDonated(run);
  if (!status.ok()) return context_.Here(status.WithPrefix(function.Describe()));
  Watch(run, function, started);
  return OkStatus();
}

Status Runs::GatherArguments(const wire::Run& run, const Function& function) {
  if (function.request.one_device ? run.devices.size() != 1 : run.devices != function.request.devices) {
    return context_.Here(InvalidArgument(function.Describe() + " must run on the devices it was compiled for"));
  }
  inputs_.clear();
  given_up_.assign(run.arguments.size(), 0);
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size()) {
      return context_.Here(InvalidArgument("RUN gives up argument " + std::to_string(position) + " of " +
                                           std::to_string(run.arguments.size())));
    }
    given_up_[position] = 1;
  }
  Launcher::Arguments& arguments = launcher_.Begin(function.local.size(), run.arguments.size());
  for (size_t position = 0; position < run.arguments.size(); ++position) {
    PW_RETURN_IF_ERROR(GatherArgument(run, function, position, arguments));
  }
  return OkStatus();
}

Status Runs::GatherArgument(const wire::Run& run, const Function& function, size_t position,
                            Launcher::Arguments& arguments) {
  const size_t shards = run.devices.size();
  const uint64_t argument = run.arguments[position];
  const bool assembled = (argument & wire::kAssembledBit) != 0;
  const size_t base = (argument & ~wire::kAssembledBit) * shards * 2;
  if (assembled && (base > run.assembled.size() || run.assembled.size() - base < shards * 2)) {
    return context_.Here(DataLoss("RUN names a row of assembled arguments that is not there"));
  }
  bool pinned = false;
  std::shared_ptr<store::Object> object;
  for (size_t row = 0; row < function.local.size(); ++row) {
    const size_t shard = function.local[row];
    const uint64_t id = assembled ? run.assembled[base + 2 * shard] : argument;
    const uint64_t number = assembled ? run.assembled[base + 2 * shard + 1] : shard;
    if (assembled || object == nullptr) {
      object = context_.store().Find(id);
      if (object == nullptr) {
        return context_.Here(NotFound("argument " + std::to_string(position) + " of " + function.Describe() +
                                      " is not on this host: it was donated to an earlier run or freed"));
      }
      if (!object->error.ok()) return object->error;
      held_.push_back(object);
      if (context_.hands_errors_on()) {
        RootCauses::Note(*object, inputs_);
      } else {
        PW_RETURN_IF_ERROR(FailureOf(context_, completions_.causes(), *object));
        RootCauses::NoteAll(*object, inputs_);
      }
    }
    PW_ASSIGN_OR_RETURN(store::Object::Shard* const part, Readable(run, function, position, *object, number));
    // A copy on one device may be the same memory under another name (Object::Alias): held by that object, and by the
    // store, by `object` and `held_`.
    constexpr int64_t kHolders = 3;
    pinned = pinned || part->pins.load() > 0 || !object->aliases.empty() || object.use_count() > kHolders;
    arguments.rows[row][position] = &part->buffer;
  }
  // The module may offer more than this run gives up: the rest has other holders, or is being read.
  if (pinned || !given_up_[position]) arguments.non_donatable.push_back(static_cast<int64_t>(position));
  return OkStatus();
}

Result<store::Object::Shard*> Runs::Readable(const wire::Run& run, const Function& function, size_t position,
                                             store::Object& object, uint64_t number) const {
  const auto what = [&] { return "argument " + std::to_string(position) + " of " + function.Describe(); };
  const size_t index = object.PositionOf(number);
  if (index == object.shards.size()) {
    return context_.Here(InvalidArgument(what() + " has no shard " + std::to_string(number) + " on this host"));
  }
  store::Object::Shard& part = object.At(index);
  if (part.staged != nullptr) {
    // Only a run that cannot have all its arguments on the device at once comes without their being restored.
    PW_RETURN_IF_ERROR(NeverFits(run, function));
    return context_.Here(Internal(what() + " is in host memory and was not restored"));
  }
  if (!part.buffer.valid()) {
    return context_.Here(
        FailedPrecondition("shard " + std::to_string(number) + " of " + what() + " has not been put yet"));
  }
  return &part;
}

Status Runs::CheckMemory(const wire::Run& run, const Function& function) const {
  const std::vector<pjrt::Buffer*>& first_row = launcher_.arguments().rows[0];
  int64_t bytes = 0;
  for (const TensorType& type : function.outputs) bytes += type.ByteSize();
  for (uint32_t position : run.donated) {
    bytes -= first_row[position]->type().ByteSize();
  }
  for (uint32_t shard : function.local) {
    PW_ASSIGN_OR_RETURN(size_t local, context_.LocalDevice(run.devices[shard]));
    const store::MemoryAccount& account = context_.store().account();
    const int64_t more = std::max<int64_t>(bytes, 0);
    if (account.Fits(local, more, function.temp_bytes)) continue;
    PW_RETURN_IF_ERROR(NeverFits(run, function));
    return context_.Here(account.Check(local, more, function.temp_bytes, function.Describe()));
  }
  return OkStatus();
}

Runs::Bytes Runs::BytesOn(size_t device, uint32_t shard, const wire::Run& run) const {
  Bytes bytes;
  std::unordered_set<uint64_t> counted;
  for (size_t position = 0; position < run.arguments.size(); ++position) {
    const uint64_t argument = run.arguments[position];
    const size_t row = (argument & ~wire::kAssembledBit) * run.devices.size() * 2;
    const bool assembled = (argument & wire::kAssembledBit) != 0;
    if (assembled && run.assembled.size() < row + 2 * run.devices.size()) continue;
    const uint64_t id = assembled ? run.assembled[row + 2 * shard] : argument;
    const std::shared_ptr<store::Object> object = context_.store().Find(id);
    if (object == nullptr || !counted.insert(id).second) continue;
    int64_t here = 0;
    for (const store::Object::Shard& part : object->shards) here += part.device == device ? part.bytes : 0;
    bytes.arguments += here;
    if (std::find(run.donated.begin(), run.donated.end(), position) != run.donated.end()) bytes.given += here;
  }
  return bytes;
}

Status Runs::NeverFits(const wire::Run& run, const Function& function) const {
  int64_t made = 0;
  for (const TensorType& type : function.outputs) made += type.ByteSize();
  for (const uint32_t shard : function.local) {
    PW_ASSIGN_OR_RETURN(const size_t device, context_.LocalDevice(run.devices[shard]));
    const Bytes bytes = BytesOn(device, shard, run);
    const int64_t limit = context_.store().account().limit(device);
    const int64_t more = std::max<int64_t>(made - bytes.given, 0);
    if (limit == 0 || bytes.arguments + more + function.temp_bytes <= limit) continue;
    return context_.Here(ResourceExhausted(
        "out of device memory: " + function.Describe() + " needs " + store::FormatBytes(bytes.arguments) +
        " for its arguments, " + store::FormatBytes(more) + " more for its results and " +
        store::FormatBytes(function.temp_bytes) + " while running on local device " + std::to_string(device) +
        ", which has " + store::FormatBytes(limit) +
        "; it can never fit: use a smaller batch or model, more devices, or a higher memory limit. What it would have "
        "written, such as a step's parameters, has no value now: load that again, from a state_dict on the CPU or a "
        "checkpoint"));
  }
  return OkStatus();
}

void Runs::RemoveDonated(const wire::Run& run) {
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size()) continue;
    const uint64_t argument = run.arguments[position];
    if (!(argument & wire::kAssembledBit)) {
      context_.store().Remove(argument);
      continue;
    }
    const size_t row = (argument & ~wire::kAssembledBit) * run.devices.size() * 2;
    for (size_t i = row; i < row + 2 * run.devices.size() && i < run.assembled.size(); i += 2) {
      context_.store().Remove(run.assembled[i]);
    }
  }
}

// Small computations have usually ended well within the launch, and then nothing of them need be followed.
bool Runs::HasEndedWell(const pjrt::ExecuteOutputs& made, size_t rows) const {
  if (!context_.hands_errors_on()) return false;
  for (size_t row = 0; row < rows; ++row) {
    if (!made.done[row].IsReady() || !made.done[row].Await().ok()) return false;
  }
  return true;
}

void Runs::Watch(const wire::Run& run, const Function& function, Clock::time_point started) {
  const size_t rows = function.local.size();
  const size_t device = run.devices[function.local[0]] - context_.first_device();
  pjrt::ExecuteOutputs& made = launcher_.outputs();
  if (HasEndedWell(made, rows)) {
    KeepResults(run, function, nullptr);
    return completions_.Ended(run.run, device, started);
  }
  auto pending = std::make_shared<PendingRun>(started);
  pending->inputs = inputs_;
  KeepResults(run, function, pending->origin);
  pending->run = run.run;
  pending->first_output = run.first_output;
  pending->output_count = run.output_count;
  pending->device = device;
  for (size_t row = 0; row < rows; ++row) {
    pjrt::EventHandle& done = made.done[row];
    const bool ended = done.IsReady();
    const Status status = ended ? done.Await() : OkStatus();
    if (pending->what.empty() && (!ended || !status.ok())) pending->what = function.Describe();
    if (!status.ok()) pending->Fail(status);
    if (!ended) completions_.Watch(pending, done);
  }
  completions_.Enqueued(pending);
}

void Runs::KeepResults(const wire::Run& run, const Function& function, const std::shared_ptr<store::Origin>& origin) {
  const size_t rows = function.local.size();
  pjrt::ExecuteOutputs& made = launcher_.outputs();
  for (size_t k = 0; k < function.outputs.size() && k < run.output_count; ++k) {
    auto object = std::make_shared<store::Object>(rows);
    object->origin = origin;
    for (size_t row = 0; row < rows; ++row) {
      store::Object::Shard& part = object->shards[row];
      part.buffer = std::move(made.buffers[row][k]);
      part.number = function.local[row];
      part.device = run.devices[part.number] - context_.first_device();
      part.bytes = part.buffer.type().ByteSize();
    }
    if (Status status = context_.store().Insert(run.first_output + k, std::move(object)); !status.ok())
      context_.Log(status.ToString());
  }
}

}  // namespace pathways::worker
