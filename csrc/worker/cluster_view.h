// ClusterView: the cluster's hosts, as the controller has named them, and where its devices are.
//
// A pure state machine. Ownership: owned by the engine. Threads: none inside; the engine's.
#ifndef PTPATHWAYS_WORKER_CLUSTER_VIEW_H_
#define PTPATHWAYS_WORKER_CLUSTER_VIEW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/gang.h"
#include "csrc/wire/bodies.h"

namespace pathways::worker {

class ClusterView {
 public:
  using Places = std::shared_ptr<const std::vector<collective::Place>>;

  void Set(std::vector<wire::HostDescription> hosts) { hosts_ = std::move(hosts); }
  // The host that was lost; nullptr: there is none of this number.
  const wire::HostDescription* Lose(uint32_t host);

  const std::vector<wire::HostDescription>& hosts() const { return hosts_; }
  std::vector<std::string> Names() const;
  // Each nullptr when there is none.
  const wire::HostDescription* Find(uint32_t host) const { return host < hosts_.size() ? &hosts_[host] : nullptr; }
  const wire::HostDescription* OfDevice(uint32_t device) const;

  // What the plugin calls a device of the cluster.
  Result<int64_t> PluginId(uint32_t device) const;
  // Where the devices are; nullptr when all are on host `here`.
  Places PlacesOf(const std::vector<uint32_t>& devices, uint32_t here) const;

 private:
  std::vector<wire::HostDescription> hosts_;  // by number
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_CLUSTER_VIEW_H_
