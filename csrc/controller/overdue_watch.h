// OverdueWatch: which hosts finish nothing although they have computations, for longer than can be expected.
//
// A host that is silent is known by its heartbeats. One whose device or engine hangs goes on to send them, and so does
// one that computes for long: they cannot be told apart, so nothing is ended. But whoever waits should not have to
// guess which host to look at. What can be expected is ten times what such a computation has taken before, and the
// limit at least.
//
// A pure state machine: what hosts have not finished in, who is overdue out. Ownership: owned by ClusterState. Threads:
// none inside; the owner serialises calls.
#ifndef PTPATHWAYS_CONTROLLER_OVERDUE_WATCH_H_
#define PTPATHWAYS_CONTROLLER_OVERDUE_WATCH_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "csrc/scheduler/gang_scheduler.h"

namespace pathways::controller {

class OverdueWatch {
 public:
  // `limit_ms` 0: nobody is ever overdue.
  explicit OverdueWatch(uint64_t limit_ms) : limit_ms_(limit_ms) {}

  // A host has become overdue (`over_ms` 0), or is no more, after so long.
  struct Change {
    uint32_t host = 0;
    scheduler::Unfinished what;  // as it was when the host became overdue
    uint64_t over_ms = 0;
  };
  uint64_t limit_ms() const { return limit_ms_; }
  // Whether a host that has not finished this is overdue. `usual_us`: what such a computation took before; 0: unknown.
  bool IsOverdue(uint32_t host, const scheduler::Unfinished& what, double usual_us, uint64_t now_ms) const {
    if (limit_ms_ == 0) return false;
    const auto resumed = resumed_.find(host);
    const uint64_t from_ms = std::max(all_resumed_ms_, resumed == resumed_.end() ? 0 : resumed->second);
    const uint64_t still_ms = std::min(what.still_ms, now_ms - std::min(now_ms, from_ms));
    return still_ms >= limit_ms_ && static_cast<double>(still_ms) >= kTimesUsual * usual_us * 1e-3;
  }
  // Until now nothing could be heard of the host: no time in which it was expected to finish anything.
  void Resumed(uint32_t host, uint64_t now_ms) { resumed_[host] = now_ms; }
  // Of no host: the controller was itself stopped.
  void AllResumed(uint64_t now_ms) { all_resumed_ms_ = now_ms; }
  // To be called regularly. `overdue`: all hosts that are, by host.
  std::vector<Change> Look(const std::map<uint32_t, scheduler::Unfinished>& overdue, uint64_t now_ms) {
    std::vector<Change> changes;
    for (auto known = known_.begin(); known != known_.end();) {
      if (overdue.contains(known->first)) {
        ++known;
        continue;
      }
      const uint64_t since_ms = known->second.since_ms;
      changes.push_back({known->first, known->second.what, std::max<uint64_t>(1, now_ms - std::min(now_ms, since_ms))});
      known = known_.erase(known);
    }
    for (const auto& [host, what] : overdue) {
      const auto [known, fresh] = known_.try_emplace(host, Known{what, now_ms - std::min(now_ms, what.still_ms)});
      if (fresh) changes.push_back({host, known->second.what, 0});
    }
    return changes;
  }
  // The host is lost, which its loss says.
  void Forget(uint32_t host) {
    known_.erase(host);
    resumed_.erase(host);
  }
  bool Knows(uint32_t host) const { return known_.contains(host); }

 private:
  static constexpr double kTimesUsual = 10;
  struct Known {
    scheduler::Unfinished what;
    uint64_t since_ms = 0;  // when something had last ended there
  };

  const uint64_t limit_ms_;
  uint64_t all_resumed_ms_ = 0;
  std::map<uint32_t, uint64_t> resumed_;  // by host, at its own time
  std::map<uint32_t, Known> known_;       // those that are overdue, by host
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_OVERDUE_WATCH_H_
