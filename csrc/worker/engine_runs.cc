// Engine: runs. Enqueueing computations without waiting, and reporting those that finished.
#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "csrc/worker/engine.h"

namespace pathways::worker {

using Clock = std::chrono::steady_clock;

void Engine::OnRun(const wire::Run& run) {
  auto it = functions_.find(run.function);
  Status status;
  if (it == functions_.end()) {
    status = context_.Here(NotFound("function " + std::to_string(run.function) + " is not registered"));
  } else if (!it->second->status.ok()) {
    status = it->second->status;
  } else if (!it->second->computation) {
    status = context_.Here(Internal("a run overtook the compile of its function"));
  } else {
    status = Execute(run, *it->second);
  }
  if (!status.ok()) {
    RemoveDonated(run);
    if (cluster_view_.PlacesOf(run.devices, context_.number())) gangs_->AbortElsewhere(run.run, status);
    std::vector<uint64_t> results(run.output_count);
    std::iota(results.begin(), results.end(), run.first_output);
    completions_->Poison(run.run, results, status);
  }
  held_.clear();
}

Status Engine::Execute(const wire::Run& run, Function& function) {
  PW_RETURN_IF_ERROR(GatherArguments(run, function));
  PW_RETURN_IF_ERROR(CheckMemory(run, function));
  row_spans_.clear();
  for (size_t row = 0; row < function.local.size(); ++row) row_spans_.emplace_back(rows_[row]);
  size_t device = 0;
  if (function.request.one_device) {
    PW_ASSIGN_OR_RETURN(device, context_.LocalDevice(run.devices[0]));
  }
  const auto started = Clock::now();  // small computations run inside the launch
  const Status status = Launch(function, row_spans_, device, non_donatable_, run.run, {sequence_, 0}, nullptr, 0);
  // Given up whatever the outcome: the plugin has taken them.
  RemoveDonated(run);
  if (!status.ok()) return context_.Here(status.WithPrefix(function.Describe()));
  Watch(run, function, started);
  return OkStatus();
}

Status Engine::Launch(const Function& function, std::span<const std::span<pjrt::Buffer* const>> rows, size_t device,
                      std::span<const int64_t> non_donatable, uint64_t run, const collective::LaunchId& launch,
                      const std::shared_ptr<RunTimes::Run>& times, size_t step) {
  const int64_t enqueued_ns = times ? times->NowNs() : 0;
  PW_RETURN_IF_ERROR(
      function.computation->is_spanning()
          ? gangs_->Launch(function, rows, non_donatable, run, launch, &outputs_)
          : function.computation->Launch(rows, static_cast<int>(device), non_donatable, launch, {}, &outputs_));
  for (size_t row = 0; row < rows.size(); ++row) {
    const bool ended = outputs_.done[row].IsReady();
    if (ended && times == nullptr) continue;  // what comes next is enqueued later: no need to note it
    const size_t at =
        function.request.one_device ? device : function.request.devices[function.local[row]] - context_.first_device();
    RunTimes::Span* const span = times ? times->Add(step, at, enqueued_ns) : nullptr;
    if (ended) {  // it ran within the launch; whatever comes next on this device is enqueued later
      times->read_ns = SteadyNs();
      if (span != nullptr) span->End(0, times->read_ns);
      continue;
    }
    room_->Enter(at);
    if (span != nullptr) {
      times->read_ns = 0;
      times->writers.fetch_add(1, std::memory_order_relaxed);
    }
    outputs_.done[row].OnReady([room = room_, ends = ends_, at, times, span](const Status& status) {
      const int64_t now = SteadyNs();
      const int64_t before = ends->Exchange(at, now);
      if (span != nullptr) {
        if (status.ok()) span->End(before, now);
        times->Written();
      }
      room->Leave(at);
    });
  }
  return OkStatus();
}

Status Engine::GatherArguments(const wire::Run& run, const Function& function) {
  const size_t shards = run.devices.size();
  const size_t rows = function.local.size();
  const bool one_device = function.request.one_device;
  if (one_device ? shards != 1 : run.devices != function.request.devices) {
    return context_.Here(InvalidArgument(function.Describe() + " must run on the devices it was compiled for"));
  }
  if (rows_.size() < rows) rows_.resize(rows);
  non_donatable_.clear();
  inputs_.clear();
  given_up_.assign(run.arguments.size(), 0);
  for (uint32_t position : run.donated) {
    if (position >= run.arguments.size()) {
      return context_.Here(InvalidArgument("RUN gives up argument " + std::to_string(position) + " of " +
                                           std::to_string(run.arguments.size())));
    }
    given_up_[position] = 1;
  }
  for (size_t row = 0; row < rows; ++row) rows_[row].resize(run.arguments.size());
  for (size_t position = 0; position < run.arguments.size(); ++position) {
    const uint64_t argument = run.arguments[position];
    const bool assembled = (argument & wire::kAssembledBit) != 0;
    const size_t base = (argument & ~wire::kAssembledBit) * shards * 2;
    if (assembled && (base > run.assembled.size() || run.assembled.size() - base < shards * 2)) {
      return context_.Here(DataLoss("RUN names a row of assembled arguments that is not there"));
    }
    bool pinned = false;
    std::shared_ptr<store::Object> object;
    for (size_t row = 0; row < rows; ++row) {
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
        RootCauses::Note(*object, inputs_);
      }
      const size_t index = object->PositionOf(number);
      if (index == object->shards.size()) {
        return context_.Here(InvalidArgument("argument " + std::to_string(position) + " of " + function.Describe() +
                                             " has no shard " + std::to_string(number) + " on this host"));
      }
      store::Object::Shard& part = object->At(index);
      if (part.staged != nullptr) {
        // Only a run that cannot have all its arguments on the device at once comes without their being restored.
        PW_RETURN_IF_ERROR(NeverFits(run, function));
        return context_.Here(Internal("argument " + std::to_string(position) + " of " + function.Describe() +
                                      " is in host memory and was not restored"));
      }
      if (!part.buffer.valid()) {
        return context_.Here(FailedPrecondition("shard " + std::to_string(number) + " of argument " +
                                                std::to_string(position) + " of " + function.Describe() +
                                                " has not been put yet"));
      }
      // A copy on one device may be the same memory under another name (Object::Alias): held by that object, and by
      // the store, by `object` and `held_`.
      constexpr int64_t kHolders = 3;
      pinned = pinned || part.pins.load() > 0 || !object->aliases.empty() || object.use_count() > kHolders;
      rows_[row][position] = &part.buffer;
    }
    // The module may offer more than this run gives up: the rest has other holders, or is being read.
    if (pinned || !given_up_[position]) non_donatable_.push_back(static_cast<int64_t>(position));
  }
  return OkStatus();
}

Status Engine::CheckMemory(const wire::Run& run, const Function& function) {
  int64_t bytes = 0;
  for (const TensorType& type : function.outputs) bytes += type.ByteSize();
  for (uint32_t position : run.donated) {
    bytes -= rows_[0][position]->type().ByteSize();
  }
  for (uint32_t shard : function.local) {
    PW_ASSIGN_OR_RETURN(size_t local, context_.LocalDevice(run.devices[shard]));
    Status fits =
        context_.store().account().Check(local, std::max<int64_t>(bytes, 0), function.temp_bytes, function.Describe());
    if (fits.ok()) continue;
    PW_RETURN_IF_ERROR(NeverFits(run, function));
    return context_.Here(fits);
  }
  return OkStatus();
}

Status Engine::NeverFits(const wire::Run& run, const Function& function) const {
  int64_t made = 0;
  for (const TensorType& type : function.outputs) made += type.ByteSize();
  for (const uint32_t shard : function.local) {
    PW_ASSIGN_OR_RETURN(size_t device, context_.LocalDevice(run.devices[shard]));
    std::unordered_set<uint64_t> counted;
    int64_t arguments = 0, given = 0;
    for (size_t position = 0; position < run.arguments.size(); ++position) {
      const uint64_t argument = run.arguments[position];
      const size_t row = (argument & ~wire::kAssembledBit) * run.devices.size() * 2;
      const bool assembled = (argument & wire::kAssembledBit) != 0;
      if (assembled && run.assembled.size() < row + 2 * run.devices.size()) continue;
      const uint64_t id = assembled ? run.assembled[row + 2 * shard] : argument;
      const std::shared_ptr<store::Object> object = context_.store().Find(id);
      if (object == nullptr || !counted.insert(id).second) continue;
      int64_t bytes = 0;
      for (const store::Object::Shard& part : object->shards) bytes += part.device == device ? part.bytes : 0;
      arguments += bytes;
      if (std::find(run.donated.begin(), run.donated.end(), position) != run.donated.end()) given += bytes;
    }
    const int64_t limit = context_.store().account().limit(device);
    const int64_t more = std::max<int64_t>(made - given, 0);
    if (limit == 0 || arguments + more + function.temp_bytes <= limit) continue;
    return context_.Here(
        ResourceExhausted("out of device memory: " + function.Describe() + " needs " + store::FormatBytes(arguments) +
                          " for its arguments, " + store::FormatBytes(more) + " more for its results and " +
                          store::FormatBytes(function.temp_bytes) + " while running on local device " +
                          std::to_string(device) + ", which has " + store::FormatBytes(limit) +
                          "; it can never fit: use a smaller batch or model, more devices, or a higher memory "
                          "limit"));
  }
  return OkStatus();
}

// Given up whatever the outcome: the controller's books rely on it.
void Engine::RemoveDonated(const wire::Run& run) {
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

void Engine::Watch(const wire::Run& run, const Function& function, Clock::time_point started) {
  const size_t shards = function.local.size();
  const size_t output_count = function.outputs.size();
  auto pending = std::make_shared<PendingRun>();
  pending->inputs = inputs_;
  for (size_t k = 0; k < output_count && k < run.output_count; ++k) {
    auto object = std::make_shared<store::Object>(shards);
    object->origin = pending->origin;
    for (size_t row = 0; row < shards; ++row) {
      store::Object::Shard& part = object->shards[row];
      part.buffer = std::move(outputs_.buffers[row][k]);
      part.number = function.local[row];
      part.device = run.devices[part.number] - context_.first_device();
      part.bytes = part.buffer.type().ByteSize();
    }
    if (Status status = context_.store().Insert(run.first_output + k, std::move(object)); !status.ok())
      context_.Log(status.ToString());
  }
  pending->run = run.run;
  pending->first_output = run.first_output;
  pending->output_count = run.output_count;
  pending->device = run.devices[function.local[0]] - context_.first_device();
  pending->enqueued = started;
  for (size_t row = 0; row < shards; ++row) {
    pjrt::EventHandle& done = outputs_.done[row];
    const bool ended = done.IsReady();
    const Status status = ended ? done.Await() : OkStatus();
    if (pending->what.empty() && (!ended || !status.ok())) pending->what = function.Describe();
    if (!status.ok()) pending->Fail(status);
    if (!ended) completions_->Watch(pending, done);
  }
  completions_->Enqueued(pending);
}

}  // namespace pathways::worker
