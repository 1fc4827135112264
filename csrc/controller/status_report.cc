// The controller's state as JSON, for `ptpathways status` and for error reports.
#include <cstdio>

#include "csrc/controller/status_report.h"

namespace pathways::controller {
namespace {

std::string Json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// One JSON object, field by field.
class Object {
 public:
  template <typename T>
  Object& Number(const char* name, T value) {
    if constexpr (std::is_floating_point_v<T>) {
      char text[40];
      std::snprintf(text, sizeof text, "%.6f", value);
      return Raw(name, text);
    } else {
      return Raw(name, std::to_string(value));
    }
  }
  Object& Text(const char* name, std::string_view value) { return Raw(name, Json(value)); }
  Object& Bool(const char* name, bool value) { return Raw(name, value ? "true" : "false"); }
  Object& Raw(const char* name, const std::string& value) {
    body_ += (body_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
    return *this;
  }
  std::string Done() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

std::string Array(const std::vector<std::string>& items) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) out += (i ? ", " : "") + items[i];
  return out + "]";
}

uint64_t Since(uint64_t now_ms, uint64_t then_ms) { return now_ms < then_ms ? 0 : now_ms - then_ms; }

}  // namespace

std::string StatusReport::UnfinishedJson(uint32_t host, const scheduler::Unfinished* what) const {
  if (what == nullptr) return "null";
  const Client* client = of_.clients.Find(what->client);
  return Object()
      .Number("device", what->device)
      .Number("computations", what->gangs)
      .Number("still_ms", what->still_ms)
      .Text("first", of_.watch.DescribeWork(*what))
      .Text("client", client == nullptr ? "" : client->name)
      .Number("sent_ms", what->age_ms)
      .Number("engine_still_ms", of_.hosts[host].load.engine_still_ms)
      .Bool("overdue", of_.watch.IsOverdue(host, *what, now_ms_))
      .Done();
}

std::string StatusReport::HostJson(const Host& host, const scheduler::Unfinished* unfinished) const {
  const wire::HostDescription& d = host.description;
  int64_t limit = 0;
  for (const wire::DeviceDescription& device : d.devices) limit += device.memory_limit_bytes;
  return Object()
      .Number("host", d.host)
      .Text("name", d.name)
      .Bool("alive", d.alive != 0)
      .Bool("silent", d.alive == wire::kHostSilent)
      .Number("pid", d.pid)
      .Text("platform", d.platform)
      .Text("island", d.island)
      .Number("devices", d.devices.size())
      .Raw("device_slices", of_.resources.LoadJson(d.host))
      .Number("first_device", d.first_device)
      .Number("live_buffers", host.load.live_buffers)
      .Number("live_bytes", host.load.live_bytes)
      .Number("memory_limit_bytes", limit)
      .Raw("memory", of_.ledger.HostJson(d.host))
      .Number("staged_bytes", static_cast<uint64_t>(of_.ledger.staged_bytes(d.host)))
      .Raw("unfinished", UnfinishedJson(d.host, unfinished))
      .Number("silent_ms", Since(now_ms_, of_.last_heard_ms(host.connection).value_or(now_ms_)))
      .Text("lost", host.lost_reason)
      .Done();
}

std::string StatusReport::WaitText(const Client& client) const {
  switch (client.stream.wait()) {
    case Wait::kNothing:
      return "";
    case Wait::kCompile: {
      auto function = client.functions.find(client.stream.wait_for());
      return "compiling " + (function == client.functions.end() ? "a function" : function->second.name);
    }
    case Wait::kPlan: {
      auto program = client.programs.find(client.stream.wait_for());
      return "preparing " + (program == client.programs.end() ? "a program" : program->second.name);
    }
    case Wait::kMemory:
      return "memory";
    case Wait::kTurn:
      return "its turn";
    case Wait::kFetches:
      return "its " + std::to_string(FetchRound::kMost) + " latest fetches to be taken by host " +
             Quoted(of_.hosts[client.stream.wait_for()].description.name);
  }
  return "";
}

std::string StatusReport::ClientJson(uint32_t index, const Client& client) const {
  auto account = of_.scheduler.accounts().find(index);
  const scheduler::ClientAccount none;
  const scheduler::ClientAccount& counts = account == of_.scheduler.accounts().end() ? none : account->second;
  const MemoryLedger::ClientBooks books = of_.ledger.client_books(index);
  const size_t waiting = client.stream.runs();
  return Object()
      .Number("client", index)
      .Text("name", client.name)
      .Number("pid", client.pid)
      .Number("weight", counts.weight)
      .Number("priority", counts.priority)
      .Number("connected_ms", Since(now_ms_, client.joined_ms))
      .Number("functions", client.functions.size())
      .Number("programs", client.programs.size())
      .Number("gangs_submitted", counts.submitted + waiting)
      .Number("gangs_finished", counts.finished)
      .Number("gangs_in_flight", of_.scheduler.in_flight_of(index))
      .Number("gangs_waiting", waiting)
      .Text("waiting_for", WaitText(client))
      .Number("waiting_messages", client.stream.size())
      .Number("buffer_bytes", static_cast<uint64_t>(books.bytes))
      .Number("staged_bytes", static_cast<uint64_t>(books.staged))
      .Number("waited_seconds", counts.waited_seconds)
      .Number("device_seconds", counts.device_seconds)
      .Done();
}

std::string StatusReport::Json() const {
  std::vector<std::string> hosts, islands, clients;
  size_t functions = 0, programs = 0;
  const std::map<uint32_t, scheduler::Unfinished> unfinished = of_.scheduler.UnfinishedByHost(now_ms_, 0);
  for (const Host& host : of_.hosts) {
    auto found = unfinished.find(host.description.host);
    hosts.push_back(HostJson(host, found == unfinished.end() ? nullptr : &found->second));
  }
  for (const auto& [name, number] : of_.hosts.islands()) {
    size_t members = 0, devices = 0;
    for (const Host& host : of_.hosts) {
      if (host.island != number || !host.alive()) continue;
      ++members;
      devices += host.description.devices.size();
    }
    islands.push_back(Object()
                          .Text("name", name)
                          .Number("hosts", members)
                          .Number("devices", devices)
                          .Number("gangs_in_flight", of_.scheduler.in_flight(number))
                          .Number("gangs_waiting", of_.scheduler.asking(number))
                          .Number("gangs_ordered", of_.scheduler.granted(number))
                          .Number("queued_ms", of_.scheduler.queued_us(number) * 1e-3)
                          .Done());
  }
  for (const auto& [index, client] : of_.clients) {
    clients.push_back(ClientJson(index, client));
    functions += client.functions.size();
    programs += client.programs.size();
  }
  return Object()
      .Text("cluster", of_.options.cluster)
      .Text("build", of_.options.build)
      .Text("policy", scheduler::PolicyName(of_.options.scheduling.policy))
      .Number("queue_ms", static_cast<double>(of_.options.scheduling.queue_us) * 1e-3)
      .Raw("controller", Object()
                             .Number("pid", of_.serving.pid)
                             .Number("standby", of_.serving.standby)
                             .Number("takeovers", of_.serving.takeovers)
                             .Done())
      .Number("functions", functions)
      .Number("programs", programs)
      .Raw("hosts", Array(hosts))
      .Raw("islands", Array(islands))
      .Raw("clients", Array(clients))
      .Raw("slices", of_.resources.SlicesJson())
      .Done();
}

}  // namespace pathways::controller
