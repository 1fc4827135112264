// MemoryGate: where messages that make buffers pass the ledger, and its orders go to the workers.
//
// Ownership: owned by ClusterState; borrows the ledger and the hosts. Threads: none inside; the owner serialises calls.
// Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_MEMORY_GATE_H_
#define PTPATHWAYS_CONTROLLER_MEMORY_GATE_H_

#include <cstdint>

#include "csrc/controller/client_stream.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/outbox.h"
#include "csrc/scheduler/gang_scheduler.h"

namespace pathways::controller {

class MemoryGate {
 public:
  MemoryGate(MemoryLedger& ledger, const Hosts& hosts) : ledger_(ledger), hosts_(hosts) {}

  struct Pass {
    bool may_go = true;                      // else it must wait
    const MemoryRequest* entered = nullptr;  // in the ledger, until the next question; Start or Hold must follow
  };
  // Asks for a run, unless no device has a limit or it has asked before. `fill`: void(MemoryRequest&).
  template <typename Fill>
  Pass AskForRun(uint32_t client, uint64_t run, const scheduler::GangShape& shape, const ClientStream& stream,
                 Fill fill, Outbox& outbox) {
    if (!IsLimited(shape) || stream.is_granted(run) || ledger_.IsHeld(client, run)) return {};
    request_.Clear();
    fill(request_);
    return Enter(outbox);
  }
  // Whether a buffer of one shard may go to its device. `id`: of the message. `others_here`: as in MemoryRequest.
  bool AskForBuffer(uint32_t client, uint64_t id, uint64_t buffer, int64_t bytes, uint32_t device, uint32_t others_here,
                    Outbox& outbox);
  // Tells workers what the ledger has decided.
  void SendOrders(Outbox& outbox);

 private:
  bool IsLimited(const scheduler::GangShape& shape) const;
  Pass Enter(Outbox& outbox);

  MemoryLedger& ledger_;
  const Hosts& hosts_;
  MemoryRequest request_;  // of the latest question; kept for its memory
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_MEMORY_GATE_H_
