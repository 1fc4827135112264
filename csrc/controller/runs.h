// Runs: from a client's message to the hosts' last word.
//
// The gates that a run passes, in order: it is well formed and its client's own; its function or plans are there and
// compiled (else it waits); there is memory for it (else it waits); its turn has come on every island it needs (else it
// waits). Then the same bytes go to every host that takes part, with its place in the cluster's order.
//
// Ownership: owned by ClusterState; borrows the parts below it. Threads: none inside; the owner serialises calls.
// Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_RUNS_H_
#define PTPATHWAYS_CONTROLLER_RUNS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/arrival_order.h"
#include "csrc/controller/clients.h"
#include "csrc/controller/deadlock.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/memory_gate.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/outbox.h"
#include "csrc/scheduler/gang_scheduler.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::controller {

class Runs {
 public:
  // `arbitrates`: the scheduler gives gangs one order; else each host's is its own (arrival_order.h).
  Runs(Hosts& hosts, Clients& clients, scheduler::GangScheduler& scheduler, MemoryLedger& ledger, MemoryGate& gate,
       bool arbitrates)
      : hosts_(hosts),
        clients_(clients),
        scheduler_(scheduler),
        ledger_(ledger),
        gate_(gate),
        arbitrates_(arbitrates) {}

  // --- what a client says. One that cannot be is told so; an error is a message that is wrong.
  Result<Outcome> Take(Client& owner, const wire::Run& run, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::RunProgram& run, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::RunInPlace& run, Message& message, Outbox& outbox);
  // Nothing else that a client, or all, send may overtake their runs.
  void LetGo(std::optional<uint32_t> client, Outbox& outbox);

  // --- what hosts say
  void Done(uint32_t host, wire::Done done, std::string frame, Outbox& outbox);
  // Tells the hosts of the run, but for the one that said so.
  void Abort(const wire::Abort& abort, std::optional<uint32_t> by, Outbox& outbox);
  // Ends gangs that wait for each other.
  void Stalled(uint32_t host, wire::Stalled stalled, Outbox& outbox);

  // --- losses
  // The host is given nothing more.
  void Forget(uint32_t host);
  // Its clients are told of the runs that needed the host.
  void FailOf(uint32_t host, const Status& status, Outbox& outbox);
  void DropClient(uint32_t client) {
    arrival_order_.Release(client, [](const Outgoing&) {});
  }

 private:
  // Where a run computes; the reason, for its client, when it cannot.
  Result<std::shared_ptr<const scheduler::GangShape>> ShapeOfRun(const wire::Run& run, FunctionState& function);
  std::shared_ptr<const scheduler::GangShape> ShapeOfProgram(const ProgramState& program) const;
  // The last gate: asks the scheduler, and sends the frame to every host of the shape when it is the gang's turn.
  // `entered`: in the books for it, or null.
  template <typename Run>
  Outcome Dispatch(Client& owner, const Run& run, const scheduler::Gang& gang, const MemoryRequest* entered,
                   Message& message, Outbox& outbox);

  Hosts& hosts_;
  Clients& clients_;
  scheduler::GangScheduler& scheduler_;
  MemoryLedger& ledger_;
  MemoryGate& gate_;
  const bool arbitrates_;
  std::vector<std::shared_ptr<const scheduler::GangShape>> device_shapes_;  // of gangs on one device, by device
  ArrivalOrder<Outgoing> arrival_order_;                                    // used unless the scheduler arbitrates
  DeadlockWatch stalls_;                                                    // devices that wait in collectives
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_RUNS_H_
