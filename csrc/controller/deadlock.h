// Finds gangs that wait for each other, from what the hosts say about devices that wait in collectives.
//
// A gang that waits for a host waits for whatever holds the devices there which it needs. If that leads back to the
// gang itself, none of them will ever go on: the hosts have been given gangs in different orders.
//
// A pure function. Ownership: plain values. Threads: any.
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

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_DEADLOCK_H_
