// StatusReport: the controller's state as JSON, for `ptpathways status` and for error reports.
//
// Ownership: made for one report; borrows what it tells of. Threads: the owner's, which serialises calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_STATUS_REPORT_H_
#define PTPATHWAYS_CONTROLLER_STATUS_REPORT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "csrc/controller/clients.h"
#include "csrc/controller/cluster_options.h"
#include "csrc/controller/host_watch.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/resource_manager.h"
#include "csrc/scheduler/gang_scheduler.h"

namespace pathways::controller {

class StatusReport {
 public:
  struct Sources {
    const ClusterOptions& options;
    const Serving& serving;
    const Hosts& hosts;
    const Clients& clients;
    const scheduler::GangScheduler& scheduler;
    const HostWatch& watch;
    const MemoryLedger& ledger;
    const ResourceManager& resources;
    // When a member was last heard of; none when it is none any more.
    std::function<std::optional<uint64_t>(const Connection& member)> last_heard_ms;
  };
  StatusReport(const Sources& of, uint64_t now_ms) : of_(of), now_ms_(now_ms) {}

  std::string Json() const;

 private:
  // `unfinished`: of the host, or null.
  std::string HostJson(const Host& host, const scheduler::Unfinished* unfinished) const;
  std::string UnfinishedJson(uint32_t host, const scheduler::Unfinished* what) const;
  std::string ClientJson(uint32_t index, const Client& client) const;
  std::string WaitText(const Client& client) const;

  const Sources& of_;
  const uint64_t now_ms_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_STATUS_REPORT_H_
