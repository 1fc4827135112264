// Finds gangs that wait for each other, from what the hosts say about devices that wait in collectives.
//
// A gang that waits for a host waits for whatever holds the devices there which it needs. If that leads back to the
// gang itself, none of them will ever go on: the hosts have been given gangs in different orders.
//
// What a host says may be old: after its connection was cut it says again all that it has said meanwhile, while others
// speak of now. So a cycle counts when it has lasted for a while in which every host in it has spoken without a pause.
//
// Pure. Ownership: plain values. Threads: any, one at a time.
#ifndef PTPATHWAYS_CONTROLLER_DEADLOCK_H_
#define PTPATHWAYS_CONTROLLER_DEADLOCK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "csrc/scheduler/gang_scheduler.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {

struct Deadlock {
  std::vector<uint64_t> runs;  // each waits for the next, the last for the first
  std::string reason;
};

// `stalls`: by host, the latest it said. `shape_of`: of a run in flight, or nullptr. `host_name`: for the reason.
// No runs when there is none.
Deadlock FindDeadlock(const std::map<uint32_t, std::vector<wire::Stall>>& stalls,
                      const std::function<const scheduler::GangShape*(uint64_t run)>& shape_of,
                      const std::function<std::string(uint32_t host)>& host_name);

class DeadlockWatch {
 public:
  // A cycle is believed after so long.
  static constexpr uint64_t kConfirmMs = 1500;
  // Who says nothing for so long has paused; hosts say what waits there about twice a second.
  static constexpr uint64_t kPauseMs = 3000;

  // What a host says now takes the place of what it said before; empty: nothing waits there.
  void Hear(uint32_t host, std::vector<wire::Stall> stalls, uint64_t now_ms);
  void Forget(uint32_t host);
  // To be asked after Hear, with the same time: a cycle that is believed. Then all is forgotten, and what still waits
  // is told again.
  Deadlock Confirmed(uint64_t now_ms, const std::function<const scheduler::GangShape*(uint64_t run)>& shape_of,
                     const std::function<std::string(uint32_t host)>& host_name);

 private:
  std::map<uint32_t, std::vector<wire::Stall>> stalls_;  // by host
  struct Spoken {
    uint64_t since_ms;
    uint64_t last_ms;
  };
  std::map<uint32_t, Spoken> spoken_;  // by host: without a pause
  std::vector<uint64_t> suspected_;    // the runs of a cycle, in order of their numbers
  uint64_t since_ms_ = 0;              // when that was first seen
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_DEADLOCK_H_
