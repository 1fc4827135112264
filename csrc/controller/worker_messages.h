// WorkerMessages: what hosts say, and which part takes each message. Most are answers, which go on to the client whose
// request they name.
//
// Ownership: owned by ClusterState; borrows the parts that take the messages. Threads: none inside; the owner
// serialises calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_WORKER_MESSAGES_H_
#define PTPATHWAYS_CONTROLLER_WORKER_MESSAGES_H_

#include <cstdint>

#include "csrc/base/status.h"
#include "csrc/controller/client_messages.h"
#include "csrc/controller/clients.h"
#include "csrc/controller/forwarding.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/outbox.h"
#include "csrc/controller/registry.h"
#include "csrc/controller/runs.h"

namespace pathways::controller {

class WorkerMessages {
 public:
  struct Parts {
    Hosts& hosts;
    Clients& clients;
    Registry& registry;
    MemoryLedger& memory;
    Forwarding& forwarding;
    Runs& runs;
  };
  // `of_clients`: what an answer may let go on.
  WorkerMessages(const Parts& parts, ClientMessages& of_clients) : of_(parts), of_clients_(of_clients) {}

  // INVALID_ARGUMENT and others: it is malformed, or no worker's to send; nothing has changed.
  Status Take(uint32_t host, Message& message, Outbox& outbox);

 private:
  const Parts of_;
  ClientMessages& of_clients_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_WORKER_MESSAGES_H_
