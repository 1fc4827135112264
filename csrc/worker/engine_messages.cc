// Engine: messages of the controller, in order. When a device is full, the run at hand is parked and the messages
// behind it wait in waiting_, but for those that can end what fills the device, announcements of bytes (MayPass), and
// the question what is waited for.
#include "csrc/worker/engine.h"

namespace pathways::worker {

using transport::Frames;
using wire::Type;

namespace {

// Messages that are caught up on before the socket is looked at again.
constexpr int kBatch = 64;

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

void Engine::OnMessage(Frames& frames) {
  const Status status = [&]() -> Status {
    if (!parked_) return Take(frames);
    if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
    PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frames[0].bytes()));
    if (MustNotWait(head.header.type)) return Handle(head, frames);
    if (head.header.type == Type::kQuery) {
      PW_ASSIGN_OR_RETURN(const wire::Query query, wire::Decode<wire::Query>(head.body));
      if (query.kind == wire::QueryKind::kActivity) return Handle(head, frames);  // it asks why the others wait
    }
    if (head.header.type == Type::kOwnerGone) {
      // What a full device waits for may be bytes of that client. Its buffers are collected in their turn.
      PW_ASSIGN_OR_RETURN(const wire::OwnerGone gone, wire::Decode<wire::OwnerGone>(head.body));
      incoming_->FailOfClient(gone.client, GoneText(gone.client), gone.session);
      owner_gone_waits_ = true;
    }
    if (MayPass(head.header.type)) return Handle(head, frames);
    waiting_.push_back(std::move(frames));
    return OkStatus();
  }();
  if (!status.ok()) context_.Log("refused a message of the controller: " + status.ToString());
  context_.Count();
}

Status Engine::Take(Frames& frames) {
  if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
  PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frames[0].bytes()));
  return Handle(head, frames);
}

bool Engine::MayPass(Type type) const {
  if (type != Type::kExpect && type != Type::kPut) return false;
  if (owner_gone_waits_) return false;  // a client's number may be another's by now
  // Where memory is bounded, it is given away in the order of the controller's books.
  return !context_.MemoryIsBounded();
}

bool Engine::IsFull(const std::vector<uint32_t>& devices) {
  for (const uint32_t device : devices) {
    const Result<size_t> local = context_.LocalDevice(device);
    if (local.ok() && room_->Refuses(*local)) return true;
  }
  return false;
}

bool Engine::MustArrive(store::Object& value) {
  if (!enqueue_waits_ || !value.error.ok()) return false;
  for (size_t i = 0; i < value.shards.size(); ++i) {
    const pjrt::Buffer& buffer = value.At(i).buffer;
    if (!buffer.valid()) continue;
    const Result<pjrt::EventHandle> ready = buffer.ReadyEvent();
    if (!ready.ok() || ready->IsReady()) continue;  // the launch will say what is wrong
    ready->OnReady([room = room_](const Status&) { room->Wake(); });
    return true;
  }
  return false;
}

bool Engine::MustArrive(const wire::Run& run) {
  if (!enqueue_waits_) return false;
  const auto missing = [this](uint64_t id) {
    const std::shared_ptr<store::Object> object = context_.store().Find(id);
    return object != nullptr && MustArrive(*object);
  };
  for (const uint64_t argument : run.arguments) {
    if ((argument & wire::kAssembledBit) == 0 && missing(argument)) return true;
  }
  for (size_t i = 0; i < run.assembled.size(); i += 2) {
    if (missing(run.assembled[i])) return true;
  }
  return false;
}

void Engine::Resume() {
  if (!parked_) return;
  parked_ = false;
  ContinueWalk();
  for (int taken = 0; !parked_ && !waiting_.empty(); ++taken) {
    if (taken == kBatch) {
      parked_ = true;  // what comes meanwhile stays behind
      reactor_->Post([this] { Resume(); });
      break;
    }
    Frames frames = std::move(waiting_.front());
    waiting_.pop_front();
    if (Status status = Take(frames); !status.ok())
      context_.Log("refused a message of the controller: " + status.ToString());
  }
  if (waiting_.empty()) owner_gone_waits_ = false;
  context_.Count();
}

}  // namespace pathways::worker
