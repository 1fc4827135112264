// HostWatch: tells the log of hosts that finish nothing although they have computations, with what they do not finish,
// and of those that do again.
//
// Ownership: owned by ClusterState; borrows hosts, clients and scheduler. Threads: none inside; the owner serialises
// calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_HOST_WATCH_H_
#define PTPATHWAYS_CONTROLLER_HOST_WATCH_H_

#include <cstdint>
#include <string>

#include "csrc/controller/clients.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/outbox.h"
#include "csrc/controller/overdue_watch.h"
#include "csrc/scheduler/gang_scheduler.h"

namespace pathways::controller {

class HostWatch {
 public:
  // `limit_ms` 0: nobody is told of.
  HostWatch(const Hosts& hosts, const Clients& clients, const scheduler::GangScheduler& scheduler, uint64_t limit_ms)
      : hosts_(hosts), clients_(clients), scheduler_(scheduler), watch_(limit_ms) {}

  // To be called regularly.
  void Tick(Outbox& outbox);
  // As in OverdueWatch.
  void Resumed(uint32_t host, uint64_t now_ms) { watch_.Resumed(host, now_ms); }
  void AllResumed(uint64_t now_ms) { watch_.AllResumed(now_ms); }
  void Forget(uint32_t host) { watch_.Forget(host); }

  bool IsOverdue(uint32_t host, const scheduler::Unfinished& what, uint64_t now_ms) const;
  // "function 'f'", as far as its client still has it.
  std::string DescribeWork(const scheduler::Unfinished& what) const;

 private:
  const Hosts& hosts_;
  const Clients& clients_;
  const scheduler::GangScheduler& scheduler_;
  OverdueWatch watch_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_HOST_WATCH_H_
