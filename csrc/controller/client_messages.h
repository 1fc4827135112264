// ClientMessages: what clients say, in which order it is handled, and which part takes each.
//
// A client's messages are one stream. The head of the stream may have to wait (Wait says what for); all behind it
// waits, too, but for what needs no order among runs, and other clients go on.
//
// Ownership: owned by ClusterState; borrows the parts that take the messages. Threads: none inside; the owner
// serialises calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_CLIENT_MESSAGES_H_
#define PTPATHWAYS_CONTROLLER_CLIENT_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/controller/clients.h"
#include "csrc/controller/forwarding.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/outbox.h"
#include "csrc/controller/registry.h"
#include "csrc/controller/resource_manager.h"
#include "csrc/controller/runs.h"
#include "csrc/scheduler/gang_scheduler.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {

class ClientMessages {
 public:
  struct Parts {
    Clients& clients;
    scheduler::GangScheduler& scheduler;
    Registry& registry;
    MemoryLedger& memory;
    ResourceManager& resources;
    Forwarding& forwarding;
    Runs& runs;
  };
  using StatusJson = std::function<std::string(uint64_t now_ms)>;  // of the cluster

  ClientMessages(const Parts& parts, StatusJson status) : of_(parts), status_(std::move(status)) {}

  // Handles a message, or holds it back. A malformed or forbidden one is answered with the reason. RESOURCE_EXHAUSTED:
  // too much is held back, and the client, which has been told, must go.
  Status Take(uint32_t client, Message& message, Outbox& outbox);
  // Handles what a client's stream holds back, up to the next message that must wait.
  void Release(uint32_t client, Outbox& outbox);
  // The same for each client that waits for a fetch of the host, beginning with another one than last time.
  void ReleaseFetches(uint32_t host, Outbox& outbox);
  // Lets every gang go whose turn has come, and every message for which there is memory now.
  void GrantTurns(Outbox& outbox);

 private:
  using Handler = Result<Outcome> (*)(ClientMessages& self, Client& owner, Message& message, Outbox& outbox);

  Result<Outcome> Handle(uint32_t client, Message& message, Outbox& outbox);
  // Frees what messages behind one that waits for memory free, unless a message before them names it.
  void FreeBehind(Client& owner, Outbox& outbox);
  Result<Outcome> On(Client& owner, const wire::RequestSlice& request, Message& message, Outbox& outbox);
  Result<Outcome> On(Client& owner, const wire::ReleaseSlice& request, Message& message, Outbox& outbox);
  Result<Outcome> On(Client& owner, const wire::Query& query, Message& message, Outbox& outbox);
  // By type of message:
  template <typename Body>
  static Result<Outcome> Call(ClientMessages& self, Client& owner, Message& message, Outbox& outbox);
  template <typename... Bodies>
  static constexpr auto TableOf();

  const Parts of_;
  const StatusJson status_;
  uint64_t arrivals_ = 0;  // messages of clients so far
  size_t fetch_turn_ = 0;
  wire::Run spare_run_;  // any, with the memory of an earlier message's arrays
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CLIENT_MESSAGES_H_
