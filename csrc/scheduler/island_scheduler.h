// IslandScheduler: puts the gangs of all clients of one island in one order (paper 4.4).
//
// A pure state machine: events in, decisions out. No socket, clock or thread inside; time comes as an argument.
// Ownership: owned by the controller's state. Threads: none inside; the owner serialises calls.
//
// Policy: first in, first out. A gang is dispatched when it is submitted, because its hosts' queues keep the order:
// the sequence number is the order, and every host of the island sees gangs by rising sequence number.
#ifndef PTPATHWAYS_SCHEDULER_ISLAND_SCHEDULER_H_
#define PTPATHWAYS_SCHEDULER_ISLAND_SCHEDULER_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::scheduler {

struct Gang {
  uint64_t run = 0;
  uint32_t client = 0;
  uint32_t host_count = 1;  // hosts whose completion ends the gang
};

struct ClientAccount {
  uint64_t gangs_submitted = 0;
  uint64_t gangs_finished = 0;
  double device_seconds = 0;
};

class IslandScheduler {
 public:
  // Admits a gang and gives its place in the island's order, counted from 1. ALREADY_EXISTS for a run in flight.
  Result<uint64_t> Submit(const Gang& gang);

  // One host's part of a gang has ended. True when that ends the gang; false for parts still out and for unknown runs
  // (their client may be gone).
  bool PartDone(uint64_t run, double device_seconds);

  // Forgets the gangs of a client that is gone; the account stays for the record.
  void DropClient(uint32_t client);

  size_t in_flight() const { return in_flight_.size(); }
  uint64_t last_sequence() const { return last_sequence_; }
  const std::unordered_map<uint32_t, ClientAccount>& accounts() const { return accounts_; }

 private:
  struct InFlight {
    uint32_t client;
    uint32_t parts_left;
    uint64_t sequence;
  };
  std::unordered_map<uint64_t, InFlight> in_flight_;
  std::unordered_map<uint32_t, ClientAccount> accounts_;
  uint64_t last_sequence_ = 0;
};

}  // namespace pathways::scheduler

#endif  // PTPATHWAYS_SCHEDULER_ISLAND_SCHEDULER_H_
