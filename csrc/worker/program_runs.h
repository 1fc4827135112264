// ProgramRuns: executions of programs. Plans are walked; a walk stops while a device is full.
//
// Ownership: owned by the engine; borrows what it is made of. Threads: the engine's. Locks: none.
#ifndef PTPATHWAYS_WORKER_PROGRAM_RUNS_H_
#define PTPATHWAYS_WORKER_PROGRAM_RUNS_H_

#include <cstdint>
#include <memory>
#include <span>

#include "csrc/worker/buffers.h"
#include "csrc/worker/completions.h"
#include "csrc/worker/gangs.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/plan_host.h"
#include "csrc/worker/programs.h"
#include "csrc/worker/root_causes.h"

namespace pathways::worker {

class ProgramRuns {
 public:
  ProgramRuns(HostContext& context, const Programs& programs, PlanHost& host, Buffers& buffers, Incoming& incoming,
              Completions& completions, Gangs& gangs, RootCauses& causes, dataplane::DataPlane& data)
      : context_(context),
        programs_(programs),
        host_(host),
        buffers_(buffers),
        incoming_(incoming),
        completions_(completions),
        gangs_(gangs),
        causes_(causes),
        data_(data) {}

  // Whatever becomes of a run, it is reported. `sequence`: its place in the cluster's order. False: a device is full,
  // and nothing else is to be run before Continue has said true.
  bool Start(wire::RunProgram run, uint64_t sequence);
  bool StartInPlace(const wire::RunInPlace& message, uint64_t sequence);
  bool Continue();

 private:
  // `run` and `results` must stay where they are until the walk has ended.
  bool Walk(const std::shared_ptr<Program>& program, const wire::RunProgram& run, std::span<const uint64_t> results,
            uint64_t sequence);
  // Nothing of it runs. `program`: may be an error.
  void Refuse(const Result<std::shared_ptr<Program>>& program, uint64_t run, uint64_t first_key,
              std::span<const uint64_t> results, const Status& status);
  // The other hosts must not wait for what this one would have sent, nor keep what it would have received.
  void RefuseTransfers(const Program& program, uint64_t first_key, const Status& status);
  Status CheckMemory(const Program& program, const wire::RunProgram& run) const;

  HostContext& context_;
  const Programs& programs_;
  PlanHost& host_;
  Buffers& buffers_;
  Incoming& incoming_;
  Completions& completions_;
  Gangs& gangs_;
  RootCauses& causes_;
  dataplane::DataPlane& data_;
  wire::RunProgram walked_run_;  // of the walk, which may outlast its message
  plan::FullRun full_run_;       // the same of a run in place
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_PROGRAM_RUNS_H_
