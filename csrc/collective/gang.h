// What the engine tells a Communicator: who takes part in a launch, and which other hosts there are.
//
// Ownership: plain values. Threads: plain values.
#ifndef PTPATHWAYS_COLLECTIVE_GANG_H_
#define PTPATHWAYS_COLLECTIVE_GANG_H_

#include <chrono>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pathways::collective {

// Where a shard runs. `device` is its index within its host.
struct Place {
  uint32_t host = 0;
  uint32_t device = 0;
};

// Which launch of the whole cluster: the same on all its hosts, and in the order in which every device gets its
// launches. Nothing that a host counts for itself belongs in it.
struct LaunchId {
  uint64_t sequence = 0;  // the run's place in the cluster's order
  uint32_t node = 0;      // the node's place in the run's program, of all hosts; 0 of a run of one function
  auto operator<=>(const LaunchId&) const = default;
};

// One launch of one computation over several hosts.
struct Gang {
  uint64_t run = 0;  // of the run, for Abort
  LaunchId launch;
  std::string what;                                  // "function 'f' (train.py:12)"
  std::shared_ptr<const std::vector<Place>> shards;  // by shard number
};

struct HostInfo {
  uint32_t host = 0;
  std::string name;
  bool same_machine = false;    // its memory can be shared
  std::string data_endpoint{};  // where its data plane listens; not needed for one on this machine
  std::string machine{};        // transport::MachineToken() of it
};

// A collective that waits for somebody.
struct Stall {
  uint64_t run = 0;
  LaunchId launch;
  std::string what;
  int device = 0;               // of this host: one that has arrived
  uint32_t waits_for_host = 0;  // this host itself: another of its devices has not come
  uint32_t op = 0;              // number of the instruction
  std::chrono::milliseconds age{};
};

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_GANG_H_
