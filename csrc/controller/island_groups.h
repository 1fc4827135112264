// IslandGroups: hosts that make one client of their plugins together (GPU and TPU islands, whose collectives are the
// plugin's own). Who takes part, which number each has, and the key-value store through which their plugins find each
// other.
//
// A pure state machine: message in, answers out; no socket, clock or thread inside.
//
// Ownership: owned by ClusterState. Threads: none inside; the owner serialises calls.
//
// A group forms when the first host of an island asks, and is complete when all that it said are there. Hosts are
// numbered in the order in which the cluster expects them, others after them by name. Such a client cannot go on
// without one of its hosts: when one leaves, all others are told, and nothing of the group is answered any more. Hosts
// that come again form the next group, with a store of its own, so no key of an earlier start is ever seen.
#ifndef PTPATHWAYS_CONTROLLER_ISLAND_GROUPS_H_
#define PTPATHWAYS_CONTROLLER_ISLAND_GROUPS_H_

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/island_bodies.h"

namespace pathways::controller {

class IslandGroups {
 public:
  struct Answer {
    std::string to;  // the connection
    wire::IslandAnswer body;
    std::string lost_host = {};  // the host to which this says that its island is no more
  };
  using Answers = std::vector<Answer>;

  static constexpr uint32_t kMaxHosts = 4096;
  static constexpr size_t kMaxKeyBytes = 4096;
  static constexpr size_t kMaxValueBytes = size_t{8} << 20;
  static constexpr size_t kMaxKeys = size_t{1} << 16;         // per island
  static constexpr size_t kMaxBytes = size_t{64} << 20;       // per island, keys and values
  static constexpr size_t kMaxWaitersPerHost = size_t{1024};  // gets under way

  // `expected`: the cluster's hosts by name, in order, as far as they are known.
  explicit IslandGroups(std::vector<std::string> expected) : expected_(std::move(expected)) {}

  void Join(const std::string& from, wire::IslandJoin join, uint64_t now_ms, Answers& out);
  void Request(const std::string& from, wire::KeyValue request, uint64_t now_ms, Answers& out);
  // The connection closed. Nothing happens when it is none of these.
  void OnDisconnected(const std::string& from, const std::string& reason, Answers& out);
  // The controller has given the host up, for whatever reason.
  void OnHostLost(const std::string& name, const std::string& reason, Answers& out);
  // Answers whose time is up.
  void Tick(uint64_t now_ms, Answers& out);
  // To everyone: the controller ends.
  Answers Farewell(const std::string& reason) const;

  // Whether the host's plugin makes one client with those of its island.
  bool has_host(const std::string& island, const std::string& name) const;
  bool knows(const std::string& connection) const { return group_of_.contains(connection); }
  std::vector<std::string> connections() const;
  size_t size() const { return groups_.size(); }

 private:
  struct Member {
    std::string connection;
    std::string name;
    size_t waiting = 0;  // gets
  };
  struct Waiter {
    std::string connection;
    uint64_t request;
    std::string key;
    uint64_t since_ms;
    uint64_t deadline_ms;
  };
  struct Group {
    wire::IslandJoin first;  // what the first host said
    uint64_t deadline_ms = 0;
    bool complete = false;
    Status failure;                    // a member is gone
    std::vector<Member> members;       // by number once complete
    std::vector<std::string> refused;  // who was turned away while it formed, and why
    std::map<std::string, std::string> values;
    size_t bytes = 0;
    std::vector<Waiter> waiters;
  };

  Status CheckJoin(const wire::IslandJoin& join) const;
  // Whether `join` fits the group that forms.
  static Status CheckFits(const Group& group, const wire::IslandJoin& join);
  Group* Forming(const std::string& island);
  void Complete(Group& group, Answers& out);
  Status Put(Group& group, wire::KeyValue& request, Answers& out);
  void Leave(uint64_t id, const std::string& connection, const std::string& reason, Answers& out);
  void Erase(uint64_t id);
  size_t Rank(const std::string& name) const;
  std::string MissingText(const Group& group) const;
  static Member* Find(Group& group, const std::string& connection);
  static void Done(Group& group, const Waiter& waiter, Status status, std::string value, Answers& out);

  const std::vector<std::string> expected_;
  std::map<uint64_t, Group> groups_;                    // by incarnation
  std::unordered_map<std::string, uint64_t> group_of_;  // connection -> incarnation
  uint64_t next_ = 1;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_ISLAND_GROUPS_H_
