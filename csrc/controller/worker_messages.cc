#include "csrc/controller/worker_messages.h"

#include <span>
#include <string>
#include <utility>

#include "csrc/wire/file_bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::controller {

using wire::Type;

Status WorkerMessages::Take(uint32_t host, Message& message, Outbox& outbox) {
  Host& state = of_.hosts[host];
  switch (message.head.header.type) {
    case Type::kHeartbeat: {
      PW_ASSIGN_OR_RETURN(state.load, wire::Decode<wire::Heartbeat>(message.head.body));
      of_clients_.ReleaseFetches(host, outbox);
      return OkStatus();
    }
    case Type::kDone: {
      PW_ASSIGN_OR_RETURN(wire::Done done, wire::Decode<wire::Done>(message.head.body));
      of_.runs.Done(host, std::move(done), std::move(message.frame), outbox);
      return OkStatus();
    }
    case Type::kRegistered: {
      PW_ASSIGN_OR_RETURN(const wire::Registered answer, wire::Decode<wire::Registered>(message.head.body));
      PW_ASSIGN_OR_RETURN(Client * owner, of_.registry.Registered(host, answer, std::move(message.frame), outbox));
      if (owner != nullptr) of_clients_.Release(owner->index, outbox);
      return OkStatus();
    }
    case Type::kPlanReady: {
      PW_ASSIGN_OR_RETURN(const wire::PlanReady answer, wire::Decode<wire::PlanReady>(message.head.body));
      PW_ASSIGN_OR_RETURN(Client * owner, of_.registry.PlanReady(host, answer, std::move(message.frame), outbox));
      if (owner != nullptr) of_clients_.Release(owner->index, outbox);
      return OkStatus();
    }
    case Type::kFetched: {
      PW_ASSIGN_OR_RETURN(wire::Fetched answer, wire::Decode<wire::Fetched>(message.head.body));
      wire::PatchSequence(message.frame, host + 1);  // the client knows whom it asked
      of_.clients.Tell(answer.request, std::move(message.frame), {}, outbox);
      return OkStatus();
    }
    case Type::kStored: {
      PW_ASSIGN_OR_RETURN(wire::Stored answer, wire::Decode<wire::Stored>(message.head.body));
      wire::PatchSequence(message.frame, host + 1);  // the client knows whom it asked
      of_.clients.Tell(answer.request, std::move(message.frame), {}, outbox);
      return OkStatus();
    }
    case Type::kBufferFailed: {
      PW_ASSIGN_OR_RETURN(wire::BufferFailed failed, wire::Decode<wire::BufferFailed>(message.head.body));
      of_.memory.Free(host, std::span(&failed.buffer, 1));  // it holds nothing there
      of_.clients.Tell(failed.buffer, std::move(message.frame), {}, outbox);
      return OkStatus();
    }
    case Type::kTransferFailed: {
      PW_ASSIGN_OR_RETURN(wire::TransferFailed failed, wire::Decode<wire::TransferFailed>(message.head.body));
      wire::PatchSequence(message.frame, host + 1);  // the receiver knows whose transfer it is
      return of_.forwarding.ToHost(failed.host, std::move(message.frame), outbox);
    }
    case Type::kSpill: {
      PW_ASSIGN_OR_RETURN(wire::Spill spilled, wire::Decode<wire::Spill>(message.head.body));
      of_.memory.Spilled(host, spilled.buffers);
      return OkStatus();
    }
    case Type::kAbort: {
      PW_ASSIGN_OR_RETURN(wire::Abort abort, wire::Decode<wire::Abort>(message.head.body));
      of_.runs.Abort(abort, host, outbox);
      return OkStatus();
    }
    case Type::kStalled: {
      PW_ASSIGN_OR_RETURN(wire::Stalled stalled, wire::Decode<wire::Stalled>(message.head.body));
      of_.runs.Stalled(host, std::move(stalled), outbox);
      return OkStatus();
    }
    case Type::kReply: {
      PW_ASSIGN_OR_RETURN(wire::Reply reply, wire::Decode<wire::Reply>(message.head.body));
      wire::PatchSequence(message.frame, host + 1);
      of_.clients.Tell(reply.request, std::move(message.frame), std::move(message.payloads), outbox);
      return OkStatus();
    }
    default:
      return InvalidArgument("a worker may not send " + std::string(wire::TypeName(message.head.header.type)));
  }
}

}  // namespace pathways::controller
