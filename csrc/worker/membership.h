// Membership: this host as a member of its cluster: that it has joined, that it lives, and who the others are.
//
// Ownership: owned by the engine; borrows the rest.
// Threads:   the engine's. The data thread's timer says that this host lives, so that neither a long inline computation
//            nor a compile silences it, and watches the engine's thread.
// Locks:     none.
#ifndef PTPATHWAYS_WORKER_MEMBERSHIP_H_
#define PTPATHWAYS_WORKER_MEMBERSHIP_H_

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "csrc/dataplane/data_plane.h"
#include "csrc/transport/control_line.h"
#include "csrc/wire/bodies.h"
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/engine_watch.h"
#include "csrc/worker/gangs.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/root_causes.h"

namespace pathways::worker {

// Exit codes of a worker process.
inline constexpr int kExitOk = 0, kExitFailed = 1, kExitRefused = 2, kExitOrphaned = 3;

// Ends this worker. Any thread.
class Stopper {
 public:
  virtual ~Stopper() = default;
  // The first call counts. `reason`: for the log, or empty.
  virtual void Stop(int exit_code, const std::string& reason) = 0;
};

class Membership {
 public:
  Membership(HostContext& context, ClusterView& cluster, RootCauses& causes, Gangs& gangs, Incoming& incoming,
             dataplane::DataPlane& data, transport::ControlLine& control, Stopper& stopper)
      : context_(context),
        cluster_(cluster),
        causes_(causes),
        gangs_(gangs),
        incoming_(incoming),
        data_(data),
        control_(control),
        stopper_(stopper) {}

  Status Welcome(const wire::Welcome& welcome);
  void Topology(const std::vector<wire::HostDescription>& hosts, const std::vector<wire::IdentityAt>& identities);
  void HostLost(const wire::HostLost& lost);
  Status Rotate(const wire::Rotate& rotate);

  // The engine's thread hangs, and the controller has been told.
  bool hangs() const { return hangs_; }

 private:
  void OnTimer();
  // Ends this worker, by name, when its engine's thread hangs.
  void WatchEngine();

  HostContext& context_;
  ClusterView& cluster_;
  RootCauses& causes_;
  Gangs& gangs_;
  Incoming& incoming_;
  dataplane::DataPlane& data_;
  transport::ControlLine& control_;
  Stopper& stopper_;
  std::optional<EngineWatch> watch_;  // the data thread's, but for Turned
  std::atomic<bool> hangs_{false};
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_MEMBERSHIP_H_
