// Gangs: computations over several hosts. Their executions are held back by the gate until it is their turn on the
// device; the collectives in them are served by the communicator; and what fails here is told to the others, which
// would wait.
//
// Ownership: owned by the engine; owns gate and communicator; borrows the rest.
// Threads:   the engine's, but for ReportStalls, which is the data thread's. Turns are called on threads of the plugin.
// Locks:     none.
#ifndef PTPATHWAYS_WORKER_GANGS_H_
#define PTPATHWAYS_WORKER_GANGS_H_

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/collective/communicator.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/completions.h"
#include "csrc/worker/function.h"
#include "csrc/worker/gang_gate.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/root_causes.h"

namespace pathways::worker {

class Gangs : private GangTurns {
 public:
  Gangs(HostContext& context, const ClusterView& cluster, RootCauses& causes, const Completions& completions,
        dataplane::DataPlane& data)
      : context_(context), cluster_(cluster), causes_(causes), completions_(completions), data_(data) {}

  // On joining. Other platforms than the CPU's have collectives of their own, and nothing is served for them.
  void Start();
  bool serves() const { return communicator_ != nullptr; }
  void Stop(const Status& status);
  // The cluster view has changed.
  void HostsChanged();
  void HostLost(uint32_t host, const Status& status);

  // Enqueues a spanning function on its shards of this host, row by row.
  Status Launch(const Function& function, std::span<const std::span<pjrt::Buffer* const>> rows,
                std::span<const int64_t> non_donatable, uint64_t run, const collective::LaunchId& launch,
                pjrt::ExecuteOutputs* outputs);

  // The run has failed here: its other hosts must not wait for this one.
  void AbortElsewhere(uint64_t run, const Status& status);
  // It has failed elsewhere.
  void Abort(const wire::Abort& abort);

  // Who waits for whom.
  std::vector<collective::Stall> Stalls(std::chrono::milliseconds older_than) const;
  void ReportStalls();

 private:
  void Begin(int device, const GangPtr& gang, uint32_t shard) override;
  void End(int device) override;
  void Failed(const GangPtr& gang, const Status& status) override;
  // False: it was known.
  bool NoteAborted(uint64_t run);

  HostContext& context_;
  const ClusterView& cluster_;
  RootCauses& causes_;
  const Completions& completions_;
  dataplane::DataPlane& data_;
  // Constant after joining, but for what they guard themselves:
  std::unique_ptr<collective::Communicator> communicator_;
  std::unique_ptr<GangGate> gate_;
  std::deque<uint64_t> aborted_;  // recent runs that the other hosts know to have failed
  bool stalled_ = false;          // the data thread's: the controller has been told of stalls
  // Reused from run to run:
  std::vector<GangGate::Ticket> tickets_;
  std::vector<pjrt::Buffer*> ticket_buffers_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_GANGS_H_
