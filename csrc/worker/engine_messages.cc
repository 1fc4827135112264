// Engine: messages of the controller, in order.
#include "csrc/worker/engine.h"

namespace pathways::worker {

using transport::Frames;
using wire::Type;

void Engine::OnMessage(Frames& frames) {
  const Status status = [&]() -> Status {
    if (!parking_.parked()) return Take(frames);
    if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
    PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frames[0].bytes()));
    PW_ASSIGN_OR_RETURN(const bool admitted, Admits(head));
    if (admitted) return Handle(head, frames);
    parking_.Wait(std::move(frames));
    return OkStatus();
  }();
  if (!status.ok()) context_.Log("refused a message of the controller: " + status.ToString());
  context_.Count();
}

Result<bool> Engine::Admits(const wire::Head& head) {
  Parking::Arrival arrival{.type = head.header.type, .memory_is_bounded = context_.MemoryIsBounded()};
  if (arrival.type == Type::kQuery) {
    PW_ASSIGN_OR_RETURN(const wire::Query query, wire::Decode<wire::Query>(head.body));
    arrival.asks_what_is_awaited = query.kind == wire::QueryKind::kActivity;
  }
  if (arrival.type == Type::kOwnerGone) {
    // What a full device waits for may be bytes of that client. Its buffers are collected in their turn.
    PW_ASSIGN_OR_RETURN(const wire::OwnerGone gone, wire::Decode<wire::OwnerGone>(head.body));
    incoming_->FailOfClient(gone.client, GoneText(gone.client), gone.session);
  }
  return parking_.Admits(arrival);
}

Status Engine::Take(Frames& frames) {
  if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
  PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frames[0].bytes()));
  return Handle(head, frames);
}

void Engine::Resume() {
  if (!parking_.Resume()) return;
  if (!program_runs_->Continue()) parking_.Park();
  while (std::optional<Frames> frames = parking_.Next()) {
    if (Status status = Take(*frames); !status.ok()) {
      context_.Log("refused a message of the controller: " + status.ToString());
    }
  }
  if (parking_.due()) reactor_->Post([this] { Resume(); });
  context_.Count();
}

}  // namespace pathways::worker
