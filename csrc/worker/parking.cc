#include "csrc/worker/parking.h"

namespace pathways::worker {
namespace {

using wire::Type;

// What is handled at once when others wait. Each changes nothing that a run before it could see but by failing, and
// they keep their order among each other.
bool MustNotWait(Type type) {
  switch (type) {
    case Type::kTopology:  // names hosts that may be lost by the next
    case Type::kHostLost:
    case Type::kAbort:
    case Type::kTransferFailed:
    case Type::kRotate:
    case Type::kHeartbeat:
    case Type::kReject:
    case Type::kGoodbye:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Parking::Park(transport::Frames frames) {
  waiting_.push_front(std::move(frames));
  parked_ = true;
}

bool Parking::Admits(const Arrival& arrival) {
  if (MustNotWait(arrival.type) || arrival.asks_what_is_awaited) return true;
  if (arrival.type == Type::kOwnerGone) owner_gone_waits_ = true;
  // These announce bytes that others send: what is waited for may be behind these bytes in their sender's window.
  if (arrival.type != Type::kExpect && arrival.type != Type::kPut) return false;
  if (owner_gone_waits_) return false;  // a client's number may be another's by now
  // Where memory is bounded, it is given away in the order of the controller's books.
  return !arrival.memory_is_bounded;
}

bool Parking::Resume() {
  if (!parked_) return false;
  parked_ = false;
  due_ = false;
  taken_ = 0;
  return true;
}

std::optional<transport::Frames> Parking::Next() {
  if (!parked_ && !waiting_.empty()) {
    if (taken_++ < kBatch) {
      transport::Frames frames = std::move(waiting_.front());
      waiting_.pop_front();
      return frames;
    }
    parked_ = true;
    due_ = true;
  }
  if (waiting_.empty()) owner_gone_waits_ = false;
  return std::nullopt;
}

}  // namespace pathways::worker
