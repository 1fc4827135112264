// What the engine tells a Communicator: who takes part in a launch, and which other hosts there are.
//
// Ownership: plain values. Threads: plain values.
#ifndef PTPATHWAYS_COLLECTIVE_GANG_H_
#define PTPATHWAYS_COLLECTIVE_GANG_H_

#include <chrono>
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

// One launch of one computation over several hosts.
struct Gang {
  uint64_t run = 0;       // of the run, for Abort
  uint64_t launch = 0;    // unique: of this node of the run
  uint64_t sequence = 0;  // place in the cluster's order; rises from gang to gang, the nodes of a run may share one
  std::string what;       // "function 'f' (train.py:12)"
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
  uint64_t launch = 0;
  std::string what;
  int device = 0;               // of this host: one that has arrived
  uint32_t waits_for_host = 0;  // this host itself: another of its devices has not come
  uint32_t op = 0;              // number of the instruction
  std::chrono::milliseconds age{};
};

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_GANG_H_
