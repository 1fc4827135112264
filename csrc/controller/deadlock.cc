#include "csrc/controller/deadlock.h"

#include <algorithm>
#include <set>

namespace pathways::controller {
namespace {

struct Edge {
  uint64_t to = 0;             // the run that holds what is waited for
  const wire::Stall* stall{};  // of the run that waits
  uint32_t host = 0;           // where it waits
};
using Edges = std::map<uint64_t, std::vector<Edge>>;  // by the run that waits

// Depth first; `path` holds the edges from the first run to `run`. True: it ends with a cycle from `cycle_start` on.
bool Search(const Edges& edges, uint64_t run, std::vector<uint64_t>& on_path, std::set<uint64_t>& seen,
            std::vector<const Edge*>& path, size_t& cycle_start) {
  on_path.push_back(run);
  if (const auto from = edges.find(run); from != edges.end()) {
    for (const Edge& edge : from->second) {
      path.push_back(&edge);
      if (const auto at = std::find(on_path.begin(), on_path.end(), edge.to); at != on_path.end()) {
        cycle_start = static_cast<size_t>(at - on_path.begin());
        return true;
      }
      if (seen.insert(edge.to).second && Search(edges, edge.to, on_path, seen, path, cycle_start)) return true;
      path.pop_back();
    }
  }
  on_path.pop_back();
  return false;
}

}  // namespace

Deadlock FindDeadlock(const std::map<uint32_t, std::vector<wire::Stall>>& stalls,
                      const std::function<const scheduler::GangShape*(uint64_t run)>& shape_of,
                      const std::function<std::string(uint32_t host)>& host_name) {
  std::map<uint32_t, uint64_t> held_by;  // device -> the run that waits on it
  for (const auto& [host, list] : stalls) {
    for (const wire::Stall& stall : list) held_by[stall.device] = stall.run;
  }
  Edges edges;
  for (const auto& [host, list] : stalls) {
    for (const wire::Stall& stall : list) {
      const scheduler::GangShape* shape = shape_of(stall.run);
      if (shape == nullptr) continue;
      for (const scheduler::GangPart& part : shape->parts) {
        if (part.host != stall.waits_for) continue;
        for (const uint32_t device : part.devices) {
          const auto holder = held_by.find(device);
          if (holder != held_by.end() && holder->second != stall.run) {
            edges[stall.run].push_back({holder->second, &stall, host});
          }
        }
      }
    }
  }
  std::set<uint64_t> seen;
  for (const auto& [run, unused] : edges) {
    std::vector<uint64_t> on_path;
    std::vector<const Edge*> path;
    size_t cycle_start = 0;
    if (!seen.insert(run).second || !Search(edges, run, on_path, seen, path, cycle_start)) continue;
    Deadlock found;
    std::string who;
    for (size_t i = cycle_start; i < path.size(); ++i) {
      const Edge& edge = *path[i];
      found.runs.push_back(edge.stall->run);
      who += (who.empty() ? "" : "; ") + edge.stall->what + " on host '" + host_name(edge.host) +
             "' waits in its collective " + std::to_string(edge.stall->collective) + " for host '" +
             host_name(edge.stall->waits_for) + "'";
    }
    found.reason =
        "deadlock: gangs reached the hosts of one island in different orders, and wait for each other: " + who +
        "; let the controller order them (any policy but arrival)";
    return found;
  }
  return {};
}

void DeadlockWatch::Hear(uint32_t host, std::vector<wire::Stall> stalls, uint64_t now_ms) {
  if (stalls.empty()) return Forget(host);
  stalls_[host] = std::move(stalls);
  const auto spoken = spoken_.try_emplace(host, Spoken{now_ms, now_ms}).first;
  if (now_ms > spoken->second.last_ms + kPauseMs) spoken->second.since_ms = now_ms;
  spoken->second.last_ms = now_ms;
}

void DeadlockWatch::Forget(uint32_t host) {
  stalls_.erase(host);
  spoken_.erase(host);
}

Deadlock DeadlockWatch::Confirmed(uint64_t now_ms,
                                  const std::function<const scheduler::GangShape*(uint64_t run)>& shape_of,
                                  const std::function<std::string(uint32_t host)>& host_name) {
  Deadlock found = FindDeadlock(stalls_, shape_of, host_name);
  std::vector<uint64_t> runs = found.runs;
  std::ranges::sort(runs);
  if (runs != suspected_) {
    suspected_ = std::move(runs);
    since_ms_ = now_ms;
    return {};
  }
  if (found.runs.empty() || now_ms < since_ms_ + kConfirmMs) return {};
  for (const auto& [host, stalls] : stalls_) {
    const bool concerned = std::ranges::any_of(
        stalls, [&](const wire::Stall& stall) { return std::ranges::binary_search(suspected_, stall.run); });
    const Spoken& spoken = spoken_.at(host);
    if (concerned && (spoken.last_ms <= since_ms_ || now_ms < spoken.since_ms + kConfirmMs)) return {};
  }
  *this = {};
  return found;
}

}  // namespace pathways::controller
