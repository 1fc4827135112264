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

void Engine::Answer(const wire::Query& query) {
  if (query.kind == wire::QueryKind::kActivity) return AnswerActivity(query.request);
  if (const std::shared_ptr<Function>& function = functions_->Find(query.function);
      function != nullptr && !function->compiled) {
    function->waiting.push_back(query);
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
    Result<std::string> times = programs_->TimesOf(query.function);
    reply.status = times.status();
    if (times.ok()) *payload = *std::move(times);
    return reply;
  }
  const std::shared_ptr<Function>& found = functions_->Find(query.function);
  if (found == nullptr) {
    reply.status = NotFound("function " + std::to_string(query.function) + " is not registered here");
    return reply;
  }
  const Function& function = *found;
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
