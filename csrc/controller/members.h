// Members: by which connection each client and host speaks, and when it was last heard of: who is silent, and who has
// been so for the whole lease.
//
// A pure state machine. Ownership: owned by ClusterState. Threads: none inside; the owner serialises calls. Locks:
// none.
#ifndef PTPATHWAYS_CONTROLLER_MEMBERS_H_
#define PTPATHWAYS_CONTROLLER_MEMBERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/controller/cluster_options.h"
#include "csrc/controller/outbox.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {

class Members {
 public:
  struct Member {
    wire::Role role;
    uint32_t index;  // of the client or host
    uint64_t last_heard_ms;
    bool silent = false;  // those concerned have been told
  };
  // A member that is silent now, or is heard of again.
  struct Change {
    Member member;
    uint64_t silence_ms;
  };
  struct Found {
    bool was_suspended = false;  // this process itself, so nobody is to blame for the silence
    std::vector<Change> changed;
    std::vector<Connection> present;                    // each expects a heartbeat
    std::vector<std::pair<Connection, uint64_t>> lost;  // silent for the lease: for how many ms
  };

  explicit Members(const ClusterOptions& options)
      : interval_ms_(options.heartbeat_interval_ms), lease_ms_(options.lease_ms), silence_ms_(options.silence_ms) {}

  void Add(const Connection& connection, wire::Role role, uint32_t index, uint64_t now_ms) {
    members_[connection] = Member{role, index, now_ms};
  }
  void Heard(const Connection& connection, uint64_t now_ms);
  void Remove(const Connection& connection);
  // Those that were removed, since the last call.
  std::vector<Connection> TakeGone() { return std::exchange(gone_, {}); }

  // Null when it is none. Valid until one is added or removed.
  const Member* Find(const Connection& connection) const;
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }

  // None until it is time for the next heartbeats. Members of the same process ("local/N") are never silent.
  std::optional<Found> Tick(uint64_t now_ms);

 private:
  const uint64_t interval_ms_, lease_ms_, silence_ms_;
  std::unordered_map<Connection, Member> members_;
  uint64_t last_tick_ms_ = 0;
  std::vector<Connection> gone_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_MEMBERS_H_
