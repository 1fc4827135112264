// Runs: executions of functions. Enqueues them without waiting, in the cluster's order.
//
// Ownership: owned by the engine; borrows what it is made of. Threads: the engine's. Locks: none.
#ifndef PTPATHWAYS_WORKER_RUNS_H_
#define PTPATHWAYS_WORKER_RUNS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/worker/cluster_view.h"
#include "csrc/worker/completions.h"
#include "csrc/worker/functions.h"
#include "csrc/worker/gangs.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/launcher.h"
#include "csrc/worker/root_causes.h"

namespace pathways::worker {

class Runs {
 public:
  Runs(HostContext& context, const ClusterView& cluster, const Functions& functions, Launcher& launcher,
       Completions& completions, Gangs& gangs)
      : context_(context),
        cluster_(cluster),
        functions_(functions),
        launcher_(launcher),
        completions_(completions),
        gangs_(gangs) {}

  // Whether a device is full or an argument must arrive first; the launcher calls on_room when that has changed.
  bool MustWait(const wire::Run& run);
  // `sequence`: its place in the cluster's order. Whatever becomes of it, it is reported.
  void Start(const wire::Run& run, uint64_t sequence);

 private:
  using Clock = std::chrono::steady_clock;

  Status Execute(const wire::Run& run, uint64_t sequence, const Function& function);
  Status GatherArguments(const wire::Run& run, const Function& function);
  Status GatherArgument(const wire::Run& run, const Function& function, size_t position,
                        Launcher::Arguments& arguments);
  // The shard that a run reads, or why it cannot.
  Result<store::Object::Shard*> Readable(const wire::Run& run, const Function& function, size_t position,
                                         store::Object& object, uint64_t number) const;
  Status CheckMemory(const wire::Run& run, const Function& function) const;
  // The error of a run that not even an empty device could take, or OK.
  Status NeverFits(const wire::Run& run, const Function& function) const;
  // The arguments on a device, and what of it the run gives up.
  struct Bytes {
    int64_t arguments = 0, given = 0;
  };
  Bytes BytesOn(size_t device, uint32_t shard, const wire::Run& run) const;
  // Given up whatever the outcome: the controller's books rely on it.
  void RemoveDonated(const wire::Run& run);
  bool HasEndedWell(const pjrt::ExecuteOutputs& made, size_t rows) const;
  void Watch(const wire::Run& run, const Function& function, Clock::time_point started);
  // `origin`: of the run that makes them, if it may still fail.
  void KeepResults(const wire::Run& run, const Function& function, const std::shared_ptr<store::Origin>& origin);

  HostContext& context_;
  const ClusterView& cluster_;
  const Functions& functions_;
  Launcher& launcher_;
  Completions& completions_;
  Gangs& gangs_;
  // Of the run at hand; reused from run to run:
  std::vector<std::shared_ptr<store::Object>> held_;
  RootCauses::Inputs inputs_;
  std::vector<char> given_up_;  // by position
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_RUNS_H_
