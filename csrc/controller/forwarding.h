// Forwarding: what clients say that one or two hosts are to do: with buffers, with files, with input pipelines, and
// questions to hosts. What names a lost host is answered in its place.
//
// Ownership: owned by ClusterState; borrows the parts below it. Threads: none inside; the owner serialises calls.
// Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_FORWARDING_H_
#define PTPATHWAYS_CONTROLLER_FORWARDING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/controller/clients.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/memory_gate.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/outbox.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/file_bodies.h"
#include "csrc/wire/pipeline_bodies.h"

namespace pathways::controller {

class Forwarding {
 public:
  // How many messages a member was sent so far, of those that its heartbeats count; null: not known, nothing is
  // bounded.
  using SentTo = std::function<uint64_t(const Connection& member)>;

  Forwarding(Hosts& hosts, MemoryLedger& ledger, MemoryGate& gate, SentTo sent_to)
      : hosts_(hosts), ledger_(ledger), gate_(gate), sent_to_(std::move(sent_to)) {}

  Result<Outcome> Take(Client& owner, const wire::Put& put, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::Fetch& fetch, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::Free& free, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::Copy& copy, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::Save& save, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::Load& load, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::TransferFailed& failed, Message& message, Outbox& outbox);
  // What a host is asked; the cluster's status is not its to tell.
  Result<Outcome> Take(Client& owner, const wire::Query& query, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::OpenPipeline& open, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::Feed& feed, Message& message, Outbox& outbox);
  Result<Outcome> Take(Client& owner, const wire::ClosePipeline& close, Message& message, Outbox& outbox);

  // To a host, unless it is lost.
  Status ToHost(uint32_t host, std::string frame, Outbox& outbox);

 private:
  // A SAVE or LOAD, to the host that is to do it.
  Status AskForFiles(Client& owner, uint64_t request, uint32_t host, Message& message, Outbox& outbox);
  // `request` 0: nothing is answered.
  Result<Outcome> ToPipeline(Client& owner, uint64_t pipeline, uint64_t request, uint32_t host, Message& message,
                             Outbox& outbox);

  Hosts& hosts_;
  MemoryLedger& ledger_;
  MemoryGate& gate_;
  const SentTo sent_to_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_FORWARDING_H_
