// ClusterOptions: what a cluster's controller is told when it is made. Serving: of its processes.
//
// Ownership: plain values. Threads: any, one at a time. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_CLUSTER_OPTIONS_H_
#define PTPATHWAYS_CONTROLLER_CLUSTER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "csrc/controller/outbox.h"
#include "csrc/scheduler/gang_scheduler.h"

namespace pathways::controller {

struct ClusterOptions {
  std::string cluster;  // the cluster's name, part of every shared-memory segment's name
  std::string build;    // package version every peer must have
  uint32_t heartbeat_interval_ms = 500;
  uint32_t lease_ms = 60'000;  // a member that is silent for longer is dropped
  uint32_t silence_ms = 4000;  // one that is for longer is told of
  // A host that has computations and finishes none for longer is told of (overdue_watch.h); 0: never.
  uint32_t overdue_ms = 30'000;
  // Hosts that are on their way, by name: they become hosts 0, 1, ... in this order, whoever calls first. Others join
  // in the order they come.
  std::vector<std::string> expected_hosts = {};
  scheduler::SchedulerOptions scheduling = {};
  // The hosts' data keys are made of it (wire/identity.h): a secret of the controller only.
  std::string data_secret = {};
  // How many messages a member was sent so far, of those that its heartbeats count; null: not known, nothing is
  // bounded.
  std::function<uint64_t(const Connection& member)> sent_to = {};
  // Of the controller, for those who lose their connection to it (base/process.h). 0: it has a standby, which goes on
  // when that process ends.
  uint64_t pid = 0;
  std::string process_space = {};
};

// The process that serves, and its standby; 0: none.
struct Serving {
  uint64_t pid = 0, standby = 0;
  uint32_t takeovers = 0;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CLUSTER_OPTIONS_H_
