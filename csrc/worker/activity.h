// Activity: what this host is doing, for those who wait for it.
//
// Ownership: owned by the engine; only looks at the other parts. Threads: the engine's, and of transfers the data
// thread's. Locks: none.
#ifndef PTPATHWAYS_WORKER_ACTIVITY_H_
#define PTPATHWAYS_WORKER_ACTIVITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/dataplane/data_plane.h"
#include "csrc/worker/buffers.h"
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/completions.h"
#include "csrc/worker/functions.h"
#include "csrc/worker/gangs.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/parking.h"

namespace pathways::worker {

class Activity {
 public:
  Activity(const HostContext& context, const ClusterView& cluster, const Functions& functions,
           const Completions& completions, const Gangs& gangs, const Buffers& buffers, const Parking& parking,
           const Incoming& incoming, dataplane::DataPlane& data)
      : context_(context),
        cluster_(cluster),
        functions_(functions),
        completions_(completions),
        gangs_(gangs),
        buffers_(buffers),
        parking_(parking),
        incoming_(incoming),
        data_(data) {}

  void Answer(uint64_t request) const;

 private:
  using Properties = std::vector<wire::Property>;

  void ListComputations(Properties* out) const;
  void ListWhatWaits(Properties* out) const;
  // On the data thread. `hosts`: their names.
  void ListTransfers(const std::vector<std::string>& hosts, Properties* out) const;

  const HostContext& context_;
  const ClusterView& cluster_;
  const Functions& functions_;
  const Completions& completions_;
  const Gangs& gangs_;
  const Buffers& buffers_;
  const Parking& parking_;
  const Incoming& incoming_;
  dataplane::DataPlane& data_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ACTIVITY_H_
