// ClusterState: the messages of workers.
#include <algorithm>

#include "csrc/controller/cluster_state.h"
#include "csrc/wire/file_bodies.h"

namespace pathways::controller {

using wire::Type;

Status ClusterState::OnWorkerMessage(uint32_t host, Message& message, Outbox& outbox) {
  Host& state = hosts_[host];
  switch (message.head.header.type) {
    case Type::kHeartbeat: {
      PW_ASSIGN_OR_RETURN(state.load, wire::Decode<wire::Heartbeat>(message.head.body));
      ReleaseFetches(host, outbox);
      return OkStatus();
    }
    case Type::kGoodbye: {
      PW_ASSIGN_OR_RETURN(wire::Goodbye goodbye, wire::Decode<wire::Goodbye>(message.head.body));
      LoseHost(host, goodbye.reason, outbox);
      return OkStatus();
    }
    case Type::kDone: {
      PW_ASSIGN_OR_RETURN(wire::Done done, wire::Decode<wire::Done>(message.head.body));
      runs_.Done(host, std::move(done), std::move(message.frame), outbox);
      return OkStatus();
    }
    case Type::kRegistered: {
      PW_ASSIGN_OR_RETURN(const wire::Registered answer, wire::Decode<wire::Registered>(message.head.body));
      PW_ASSIGN_OR_RETURN(Client * owner, registry_.Registered(host, answer, std::move(message.frame), outbox));
      if (owner != nullptr) ReleaseHeld(owner->index, outbox);
      return OkStatus();
    }
    case Type::kPlanReady: {
      PW_ASSIGN_OR_RETURN(const wire::PlanReady answer, wire::Decode<wire::PlanReady>(message.head.body));
      PW_ASSIGN_OR_RETURN(Client * owner, registry_.PlanReady(host, answer, std::move(message.frame), outbox));
      if (owner != nullptr) ReleaseHeld(owner->index, outbox);
      return OkStatus();
    }
    case Type::kFetched: {
      PW_ASSIGN_OR_RETURN(wire::Fetched answer, wire::Decode<wire::Fetched>(message.head.body));
      wire::PatchSequence(message.frame, host + 1);  // the client knows whom it asked
      clients_.Tell(answer.request, std::move(message.frame), {}, outbox);
      return OkStatus();
    }
    case Type::kStored: {
      PW_ASSIGN_OR_RETURN(wire::Stored answer, wire::Decode<wire::Stored>(message.head.body));
      wire::PatchSequence(message.frame, host + 1);  // the client knows whom it asked
      clients_.Tell(answer.request, std::move(message.frame), {}, outbox);
      return OkStatus();
    }
    case Type::kBufferFailed: {
      PW_ASSIGN_OR_RETURN(wire::BufferFailed failed, wire::Decode<wire::BufferFailed>(message.head.body));
      memory_.Free(host, std::span(&failed.buffer, 1));  // it holds nothing there
      clients_.Tell(failed.buffer, std::move(message.frame), {}, outbox);
      return OkStatus();
    }
    case Type::kTransferFailed: {
      PW_ASSIGN_OR_RETURN(wire::TransferFailed failed, wire::Decode<wire::TransferFailed>(message.head.body));
      wire::PatchSequence(message.frame, host + 1);  // the receiver knows whose transfer it is
      return forwarding_.ToHost(failed.host, std::move(message.frame), outbox);
    }
    case Type::kSpill: {
      PW_ASSIGN_OR_RETURN(wire::Spill spilled, wire::Decode<wire::Spill>(message.head.body));
      memory_.Spilled(host, spilled.buffers);
      return OkStatus();
    }
    case Type::kAbort: {
      PW_ASSIGN_OR_RETURN(wire::Abort abort, wire::Decode<wire::Abort>(message.head.body));
      runs_.Abort(abort, host, outbox);
      return OkStatus();
    }
    case Type::kStalled: {
      PW_ASSIGN_OR_RETURN(wire::Stalled stalled, wire::Decode<wire::Stalled>(message.head.body));
      runs_.Stalled(host, std::move(stalled), outbox);
      return OkStatus();
    }
    case Type::kReply: {
      PW_ASSIGN_OR_RETURN(wire::Reply reply, wire::Decode<wire::Reply>(message.head.body));
      wire::PatchSequence(message.frame, host + 1);
      clients_.Tell(reply.request, std::move(message.frame), std::move(message.payloads), outbox);
      return OkStatus();
    }
    default:
      return InvalidArgument("a worker may not send " + std::string(wire::TypeName(message.head.header.type)));
  }
}

// Each client that waits for the host in its turn, beginning with another one than last time.
void ClusterState::ReleaseFetches(uint32_t host, Outbox& outbox) {
  std::vector<uint32_t> waiting;
  for (const auto& [index, client] : clients_) {
    if (client.stream.wait() == Wait::kFetches && client.stream.wait_for() == host) waiting.push_back(index);
  }
  if (waiting.empty()) return;
  std::rotate(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(++fetch_turn_ % waiting.size()), waiting.end());
  for (const uint32_t client : waiting) ReleaseHeld(client, outbox);
}

}  // namespace pathways::controller
