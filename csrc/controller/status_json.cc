// The controller's state as JSON, for `ptpathways status` and for error reports.
#include <cstdio>

#include "csrc/controller/cluster_state.h"

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

std::string Seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f", value);
  return text;
}

}  // namespace

std::string ClusterState::StatusJson(uint64_t now_ms) const {
  std::string out = "{\"cluster\": " + Json(options_.cluster) + ", \"build\": " + Json(options_.build);
  out += ", \"hosts\": [";
  for (size_t i = 0; i < hosts_.size(); ++i) {
    const Host& host = hosts_[i];
    const wire::HostDescription& d = host.description;
    auto peer = peers_.find(host.connection);
    out += std::string(i ? ", " : "") + "{\"host\": " + std::to_string(d.host) + ", \"name\": " + Json(d.name) +
           ", \"alive\": " + (d.alive ? "true" : "false") + ", \"pid\": " + std::to_string(d.pid) +
           ", \"platform\": " + Json(d.platform) + ", \"island\": " + Json(d.island) +
           ", \"devices\": " + std::to_string(d.devices.size()) +
           ", \"device_slices\": " + resources_.LoadJson(d.host) +
           ", \"live_buffers\": " + std::to_string(host.load.live_buffers) +
           ", \"live_bytes\": " + std::to_string(host.load.live_bytes) + ", \"silent_ms\": " +
           std::to_string(
               peer == peers_.end() || now_ms < peer->second.last_heard_ms ? 0 : now_ms - peer->second.last_heard_ms) +
           ", \"lost\": " + Json(host.lost_reason) + "}";
  }
  out += "], \"islands\": [";
  bool first = true;
  for (const auto& [name, island] : islands_) {
    out += std::string(first ? "" : ", ") + "{\"name\": " + Json(name) +
           ", \"gangs_in_flight\": " + std::to_string(island.in_flight()) +
           ", \"gangs_ordered\": " + std::to_string(island.last_sequence()) + "}";
    first = false;
  }
  out += "], \"clients\": [";
  first = true;
  for (const auto& [index, client] : clients_) {
    double device_seconds = 0;
    uint64_t gangs = 0;
    for (const auto& [name, island] : islands_) {
      auto account = island.accounts().find(index);
      if (account == island.accounts().end()) continue;
      device_seconds += account->second.device_seconds;
      gangs += account->second.gangs_finished;
    }
    out += std::string(first ? "" : ", ") + "{\"client\": " + std::to_string(index) +
           ", \"name\": " + Json(client.name) + ", \"functions\": " + std::to_string(client.functions.size()) +
           ", \"waiting_messages\": " + std::to_string(client.held.size()) +
           ", \"gangs_finished\": " + std::to_string(gangs) + ", \"device_seconds\": " + Seconds(device_seconds) + "}";
    first = false;
  }
  return out + "], \"slices\": " + resources_.SlicesJson() + "}";
}

}  // namespace pathways::controller
