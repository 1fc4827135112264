#include "csrc/worker/functions.h"

#include <utility>
#include <vector>

namespace pathways::worker {

Status Functions::Register(wire::Register request, const transport::Frames& frames) {
  const uint64_t id = request.function;
  auto function = std::make_shared<Function>();
  const auto [entry, fresh] = functions_.try_emplace(id, function);
  if (!fresh) return Status(Code::kAlreadyExists, "function " + std::to_string(id) + " exists");
  Result<Compiler::Job> job = Prepare(request, frames, *function);
  function->request = std::move(request);
  if (!job.ok()) {
    function->status = context_.Here(job.status());
    function->compiled = true;
    wire::Registered answer;
    answer.function = id;
    answer.host = context_.number();
    answer.status = function->status;
    context_.Send(answer);
    return OkStatus();
  }
  compiler_->Submit(*std::move(job), [this, id](Compiler::Outcome outcome) {
    auto shared = std::make_shared<Compiler::Outcome>(std::move(outcome));
    context_.engine().Post([this, id, shared] { Compiled(id, std::move(*shared)); });
  });
  return OkStatus();
}

Result<Compiler::Job> Functions::Prepare(const wire::Register& request, const transport::Frames& frames,
                                         Function& function) const {
  if (frames.size() != 3) return DataLoss("REGISTER needs a module and options as payloads");
  Compiler::Job job;
  job.module = std::string(frames[1].bytes());
  job.format = request.format;
  job.options = std::string(frames[2].bytes());
  job.want_sharding = request.want_sharding != 0;
  if (request.one_device) {
    job.one_device = true;
    function.local = {0};
    return job;
  }
  if (request.devices.size() != static_cast<size_t>(request.replicas) * request.partitions) {
    return InvalidArgument("expected replicas x partitions = " + std::to_string(request.replicas) + " x " +
                           std::to_string(request.partitions) + " devices, got " +
                           std::to_string(request.devices.size()));
  }
  job.replicas = request.replicas;
  job.partitions = request.partitions;
  for (uint32_t shard = 0; shard < request.devices.size(); ++shard) {
    const Result<size_t> local = context_.LocalDevice(request.devices[shard]);
    if (!local.ok()) continue;  // another host's
    function.local.push_back(shard);
    job.shards.push_back({shard, static_cast<int>(*local)});
  }
  if (one_client_ && function.local.size() < request.devices.size()) {
    for (const uint32_t device : request.devices) {
      PW_ASSIGN_OR_RETURN(const int64_t id, cluster_.PluginId(device));
      job.plugin_ids.push_back(id);
    }
  }
  function.places = cluster_.PlacesOf(request.devices, context_.number());
  if (function.local.empty()) return InvalidArgument("expected devices of this host among others, got none");
  return job;
}

void Functions::Compiled(uint64_t id, Compiler::Outcome outcome) {
  const std::shared_ptr<Function> held = Find(id);
  if (held == nullptr) return;  // unregistered, or its client is gone
  Function& function = *held;
  wire::Registered answer;
  answer.function = id;
  answer.host = context_.number();
  answer.compile_us = outcome.compile_us;
  answer.code_room = outcome.code_room;
  function.compiled = true;
  if (!outcome.status.ok()) {
    function.status = context_.Here(outcome.status.WithPrefix("compiling " + function.Describe()));
    answer.status = function.status;
  } else {
    function.computation = std::move(outcome.computation);
    function.temp_bytes = function.computation->temp_bytes();
    function.outputs = function.computation->OutputTypes();
    answer.outputs = function.outputs;
    answer.output_sharding = std::move(outcome.output_sharding);
    answer.temp_bytes = static_cast<uint64_t>(function.temp_bytes);
    answer.code_bytes = static_cast<uint64_t>(function.computation->code_bytes());
  }
  context_.Send(answer);
  for (const uint64_t program : std::exchange(function.programs, {})) listener_.Compiled(program, function.status);
  for (const wire::Query& query : std::exchange(function.waiting, {})) listener_.Answer(query);
}

void Functions::Unregister(std::span<const uint64_t> ids) {
  for (const uint64_t id : ids) {
    const std::shared_ptr<Function> function = Find(id);
    if (function == nullptr) continue;
    functions_.erase(id);
    for (const wire::Query& query : std::exchange(function->waiting, {})) listener_.Answer(query);
  }
}

void Functions::ForgetClient(uint32_t client) {
  std::erase_if(functions_, [client](const auto& entry) { return wire::ClientOf(entry.first) == client; });
}

const std::shared_ptr<Function>& Functions::Find(uint64_t id) const {
  static const std::shared_ptr<Function> none;
  const auto it = functions_.find(id);
  return it == functions_.end() ? none : it->second;
}

}  // namespace pathways::worker
