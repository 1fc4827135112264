// Engine: functions. Registration, compiling, and questions about what was compiled.
#include "csrc/worker/engine.h"

namespace pathways::worker {
namespace {

wire::Property TextProperty(std::string name, std::string text) {
  wire::Property property;
  property.name = std::move(name);
  property.text = std::move(text);
  return property;
}

wire::Property IntegerProperty(std::string name, int64_t value) {
  wire::Property property;
  property.name = std::move(name);
  property.kind = 1;
  property.integer = value;
  return property;
}

wire::Property RealProperty(std::string name, double value) {
  wire::Property property;
  property.name = std::move(name);
  property.kind = 2;
  property.real = value;
  return property;
}

wire::Property ToProperty(const std::string& name, const pjrt::NamedValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return IntegerProperty(name, *integer);
  if (const auto* boolean = std::get_if<bool>(&value)) return IntegerProperty(name, *boolean);
  if (const auto* real = std::get_if<float>(&value)) return RealProperty(name, *real);
  if (const auto* text = std::get_if<std::string>(&value)) return TextProperty(name, *text);
  return TextProperty(name, "");
}

}  // namespace

Status Engine::OnRegister(const wire::Head& head, transport::Frames& frames) {
  PW_ASSIGN_OR_RETURN(wire::Register request, wire::Decode<wire::Register>(head.body));
  const uint64_t id = request.function;
  auto fail = [&](Status status) {
    wire::Registered answer;
    answer.function = id;
    answer.host = context_.number();
    answer.status = context_.Here(status);
    auto function = std::make_shared<Function>();
    function->request = request;
    function->status = answer.status;
    function->compiled = true;
    functions_[id] = std::move(function);
    context_.Send(answer);
    return OkStatus();
  };
  if (functions_.contains(id)) return Status(Code::kAlreadyExists, "function " + std::to_string(id) + " exists");
  if (frames.size() != 3) return fail(DataLoss("REGISTER needs a module and options as payloads"));

  Compiler::Job job;
  job.module = std::string(frames[1].bytes());
  job.format = request.format;
  job.options = std::string(frames[2].bytes());
  job.want_sharding = request.want_sharding != 0;
  auto function = std::make_shared<Function>();
  if (request.one_device) {
    job.one_device = true;
    function->local = {0};
  } else {
    if (request.devices.size() != static_cast<size_t>(request.replicas) * request.partitions) {
      return fail(InvalidArgument("expected replicas x partitions = " + std::to_string(request.replicas) + " x " +
                                  std::to_string(request.partitions) + " devices, got " +
                                  std::to_string(request.devices.size())));
    }
    job.replicas = request.replicas;
    job.partitions = request.partitions;
    for (uint32_t shard = 0; shard < request.devices.size(); ++shard) {
      const Result<size_t> local = context_.LocalDevice(request.devices[shard]);
      if (!local.ok()) continue;  // another host's
      function->local.push_back(shard);
      job.shards.push_back({shard, static_cast<int>(*local)});
    }
    if (island_link_ && function->local.size() < request.devices.size()) {
      for (const uint32_t device : request.devices) {
        const Result<int64_t> id = cluster_view_.PluginId(device);
        if (!id.ok()) return fail(id.status());
        job.plugin_ids.push_back(*id);
      }
    }
    function->places = cluster_view_.PlacesOf(request.devices, context_.number());
    if (function->local.empty()) return fail(InvalidArgument("expected devices of this host among others, got none"));
  }
  function->request = std::move(request);
  functions_[id] = std::move(function);
  compiler_->Submit(std::move(job), [this, id](Compiler::Outcome outcome) {
    auto shared = std::make_shared<Compiler::Outcome>(std::move(outcome));
    reactor_->Post([this, id, shared] { OnCompiled(id, std::move(*shared)); });
  });
  return OkStatus();
}

void Engine::OnCompiled(uint64_t id, Compiler::Outcome outcome) {
  auto it = functions_.find(id);
  if (it == functions_.end()) return;  // unregistered, or its client is gone
  Function& function = *it->second;
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
  for (uint64_t program : std::exchange(function.programs, {})) OnPlanCompiled(program, function.status);
  for (const wire::Query& query : std::exchange(function.waiting, {})) Answer(query);
}

void Engine::Answer(const wire::Query& query) {
  if (query.kind == wire::QueryKind::kActivity) return AnswerActivity(query.request);
  auto it = functions_.find(query.function);
  if (it != functions_.end() && !it->second->compiled) {
    it->second->waiting.push_back(query);
    return;
  }
  std::string payload;
  const wire::Reply reply = MakeReply(query, &payload);
  if (Status sent = context_.SendReply(reply, std::move(payload)); !sent.ok()) context_.Log(sent.ToString());
}

wire::Reply Engine::MakeReply(const wire::Query& query, std::string* payload) {
  wire::Reply reply;
  reply.request = query.request;
  if (query.kind == wire::QueryKind::kMemoryStats) {
    Result<size_t> device = context_.LocalDevice(query.device);
    if (!device.ok()) {
      reply.status = device.status();
      return reply;
    }
    const store::MemoryAccount& account = context_.store().account();
    int64_t in_use = account.used(*device);
    int64_t peak = account.peak(*device);
    int64_t limit = account.limit(*device);
    if (auto stats = context_.client()->GetMemoryStats(static_cast<int>(*device))) {
      in_use = stats->bytes_in_use;
      peak = stats->peak_bytes.value_or(peak);
      limit = stats->limit_bytes.value_or(limit);
    }
    reply.properties = {IntegerProperty("bytes_in_use", in_use), IntegerProperty("peak_bytes", peak),
                        IntegerProperty("limit_bytes", limit),
                        IntegerProperty("staged_bytes", context_.store().staged_bytes()),
                        IntegerProperty("live_buffers", static_cast<int64_t>(context_.store().size()))};
    return reply;
  }
  if (query.kind == wire::QueryKind::kTimes) {
    Result<std::string> times = TimesOf(query.function);
    reply.status = times.status();
    if (times.ok()) *payload = *std::move(times);
    return reply;
  }
  auto it = functions_.find(query.function);
  if (it == functions_.end()) {
    reply.status = NotFound("function " + std::to_string(query.function) + " is not registered here");
    return reply;
  }
  Function& function = *it->second;
  if (!function.status.ok()) {
    reply.status = function.status;
    return reply;
  }
  const pjrt::Executable& executable = function.computation->representative();
  switch (query.kind) {
    case wire::QueryKind::kOptimizedProgram: {
      auto program = executable.GetOptimizedProgram();
      reply.status = program.status();
      if (program.ok()) {
        reply.format = program->format;
        *payload = std::move(program->code);
      }
      return reply;
    }
    case wire::QueryKind::kCostAnalysis: {
      auto costs = executable.CostAnalysis();
      reply.status = costs.status();
      if (costs.ok()) {
        for (const auto& [name, value] : *costs) reply.properties.push_back(ToProperty(name, value));
      }
      return reply;
    }
    case wire::QueryKind::kCompiledMemory: {
      auto memory = executable.MemoryStats();
      if (!memory) {
        reply.status = Unimplemented("the plugin does not report the memory of compiled programs");
        return reply;
      }
      reply.properties = {IntegerProperty("generated_code", memory->generated_code),
                          IntegerProperty("arguments", memory->arguments),
                          IntegerProperty("outputs", memory->outputs),
                          IntegerProperty("aliased", memory->aliased),
                          IntegerProperty("temporary", memory->temporary),
                          IntegerProperty("peak", memory->peak)};
      return reply;
    }
    case wire::QueryKind::kSerialized: {
      auto bytes = executable.Serialize();
      reply.status = bytes.status();
      if (bytes.ok()) *payload = *std::move(bytes);
      return reply;
    }
    case wire::QueryKind::kFingerprint: {
      auto text = executable.Fingerprint();
      reply.status = text.status();
      if (text.ok()) *payload = *std::move(text);
      return reply;
    }
    default:
      reply.status = Unimplemented("a worker does not answer query " + std::to_string(static_cast<int>(query.kind)));
      return reply;
  }
}

}  // namespace pathways::worker
