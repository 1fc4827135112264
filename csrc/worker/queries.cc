#include "csrc/worker/queries.h"

#include <variant>

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

void Queries::Answer(const wire::Query& query) const {
  if (query.kind == wire::QueryKind::kActivity) return activity_.Answer(query.request);
  if (const std::shared_ptr<Function>& function = functions_.Find(query.function);
      function != nullptr && !function->compiled) {
    function->waiting.push_back(query);
    return;
  }
  wire::Reply reply;
  std::string payload;
  reply.request = query.request;
  reply.status = Fill(query, &reply, &payload);
  // Said even while this host ends: whoever asked waits.
  if (Status sent = context_.SendReply(reply, std::move(payload)); !sent.ok()) context_.Log(sent.ToString());
}

Status Queries::Fill(const wire::Query& query, wire::Reply* reply, std::string* payload) const {
  if (query.kind == wire::QueryKind::kMemoryStats) return FillMemory(query.device, reply);
  if (query.kind == wire::QueryKind::kTimes) {
    PW_ASSIGN_OR_RETURN(*payload, programs_.TimesOf(query.function));
    return OkStatus();
  }
  const std::shared_ptr<Function>& function = functions_.Find(query.function);
  if (function == nullptr) {
    return NotFound("function " + std::to_string(query.function) + " is not registered here");
  }
  PW_RETURN_IF_ERROR(function->status);
  return FillCompiled(query.kind, function->computation->representative(), reply, payload);
}

Status Queries::FillMemory(uint32_t device, wire::Reply* reply) const {
  PW_ASSIGN_OR_RETURN(const size_t local, context_.LocalDevice(device));
  const store::ObjectStore& store = context_.store();
  int64_t in_use = store.account().used(local);
  int64_t peak = store.account().peak(local);
  int64_t limit = store.account().limit(local);
  if (const auto stats = context_.client()->GetMemoryStats(static_cast<int>(local))) {
    in_use = stats->bytes_in_use;
    peak = stats->peak_bytes.value_or(peak);
    limit = stats->limit_bytes.value_or(limit);
  }
  reply->properties = {IntegerProperty("bytes_in_use", in_use), IntegerProperty("peak_bytes", peak),
                       IntegerProperty("limit_bytes", limit), IntegerProperty("staged_bytes", store.staged_bytes()),
                       IntegerProperty("live_buffers", static_cast<int64_t>(store.size()))};
  return OkStatus();
}

Status Queries::FillCompiled(wire::QueryKind kind, const pjrt::Executable& executable, wire::Reply* reply,
                             std::string* payload) const {
  switch (kind) {
    case wire::QueryKind::kOptimizedProgram: {
      PW_ASSIGN_OR_RETURN(auto program, executable.GetOptimizedProgram());
      reply->format = program.format;
      *payload = std::move(program.code);
      return OkStatus();
    }
    case wire::QueryKind::kCostAnalysis: {
      PW_ASSIGN_OR_RETURN(const auto costs, executable.CostAnalysis());
      for (const auto& [name, value] : costs) reply->properties.push_back(ToProperty(name, value));
      return OkStatus();
    }
    case wire::QueryKind::kCompiledMemory: {
      const auto memory = executable.MemoryStats();
      if (!memory) return Unimplemented("the plugin does not report the memory of compiled programs");
      reply->properties = {IntegerProperty("generated_code", memory->generated_code),
                           IntegerProperty("arguments", memory->arguments),
                           IntegerProperty("outputs", memory->outputs),
                           IntegerProperty("aliased", memory->aliased),
                           IntegerProperty("temporary", memory->temporary),
                           IntegerProperty("peak", memory->peak)};
      return OkStatus();
    }
    case wire::QueryKind::kSerialized: {
      PW_ASSIGN_OR_RETURN(*payload, executable.Serialize());
      return OkStatus();
    }
    case wire::QueryKind::kFingerprint: {
      PW_ASSIGN_OR_RETURN(*payload, executable.Fingerprint());
      return OkStatus();
    }
    default:
      return Unimplemented("a worker does not answer query " + std::to_string(static_cast<int>(kind)));
  }
}

}  // namespace pathways::worker
