#include "csrc/worker/dispatch.h"

#include <array>
#include <optional>
#include <type_traits>
#include <utility>

#include "csrc/transport/shm.h"
#include "csrc/worker/parts.h"

namespace pathways::worker {

using transport::Frames;
using wire::Type;

namespace {

Status GoneText(uint32_t client) { return Cancelled("client " + std::to_string(client) + " is gone"); }

}  // namespace

template <typename Body>
Status Dispatch::Call(Dispatch& self, Message& message) {
  if constexpr (std::is_empty_v<Body>) {
    return self.On(Body(), message);
  } else if constexpr (std::is_same_v<Body, wire::Run>) {
    wire::Run run = std::move(self.spare_run_);
    PW_RETURN_IF_ERROR(wire::DecodeInto(message.head.body, run));
    const Status status = self.On(run, message);
    self.spare_run_ = std::move(run);
    return status;
  } else {
    PW_ASSIGN_OR_RETURN(Body body, wire::Decode<Body>(message.head.body));
    return self.On(std::move(body), message);
  }
}

template <typename... Bodies>
constexpr auto Dispatch::TableOf() {
  std::array<Handler, 64> handlers{};
  ((handlers[static_cast<size_t>(Bodies::kType)] = &Call<Bodies>), ...);
  return handlers;
}

Status Dispatch::Handle(const wire::Head& head, Frames& frames) {
  static constexpr auto kHandlers =
      TableOf<wire::Run, wire::RunProgram, wire::RunInPlace, wire::Register, wire::RegisterPlan, wire::Unregister,
              wire::Put, wire::Expect, wire::Fetch, wire::Copy, wire::Free, wire::Spill, wire::Restore, wire::Save,
              wire::Load, wire::OpenPipeline, wire::Feed, wire::ClosePipeline, wire::Query, wire::Welcome,
              wire::Topology, wire::HostLost, wire::TransferFailed, wire::Rotate, wire::Abort, wire::OwnerGone,
              wire::Reject, Bare<Type::kHeartbeat>, Bare<Type::kGoodbye>>();
  const size_t type = static_cast<size_t>(head.header.type);
  if (type >= kHandlers.size() || kHandlers[type] == nullptr) {
    return InvalidArgument("a worker does not take " + std::string(wire::TypeName(head.header.type)));
  }
  Message message{head, frames};
  return kHandlers[type](*this, message);
}

void Dispatch::OnMessage(Frames& frames) {
  Refused([&]() -> Status {
    if (!parts_.parking.parked()) return Take(frames);
    if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
    PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frames[0].bytes()));
    PW_ASSIGN_OR_RETURN(const bool admitted, Admits(head));
    if (admitted) return Handle(head, frames);
    parts_.parking.Wait(std::move(frames));
    return OkStatus();
  }());
  parts_.context.Count();
}

Status Dispatch::Take(Frames& frames) {
  if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
  PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frames[0].bytes()));
  return Handle(head, frames);
}

void Dispatch::Refused(const Status& status) const {
  if (!status.ok()) parts_.context.Log("refused a message of the controller: " + status.ToString());
}

Result<bool> Dispatch::Admits(const wire::Head& head) {
  Parking::Arrival arrival{.type = head.header.type, .memory_is_bounded = parts_.context.MemoryIsBounded()};
  if (arrival.type == Type::kQuery) {
    PW_ASSIGN_OR_RETURN(const wire::Query query, wire::Decode<wire::Query>(head.body));
    arrival.asks_what_is_awaited = query.kind == wire::QueryKind::kActivity;
  }
  if (arrival.type == Type::kOwnerGone) {
    // What a full device waits for may be bytes of that client. Its buffers are collected in their turn.
    PW_ASSIGN_OR_RETURN(const wire::OwnerGone gone, wire::Decode<wire::OwnerGone>(head.body));
    parts_.incoming.FailOfClient(gone.client, GoneText(gone.client), gone.session);
  }
  return parts_.parking.Admits(arrival);
}

void Dispatch::Resume() {
  if (!parts_.parking.Resume()) return;
  if (!parts_.program_runs.Continue()) parts_.parking.Park();
  while (std::optional<Frames> frames = parts_.parking.Next()) Refused(Take(*frames));
  if (parts_.parking.due()) parts_.context.engine().Post([this] { Resume(); });
  parts_.context.Count();
}

Status Dispatch::On(const wire::Run& run, Message& message) {
  if (parts_.runs.MustWait(run)) {
    parts_.parking.Park(std::move(message.frames));
  } else {
    parts_.runs.Start(run, message.head.header.sequence);
  }
  return OkStatus();
}

Status Dispatch::On(wire::RunProgram run, Message& message) {
  if (!parts_.program_runs.Start(std::move(run), message.head.header.sequence)) parts_.parking.Park();
  return OkStatus();
}

Status Dispatch::On(const wire::RunInPlace& run, Message& message) {
  if (!parts_.program_runs.StartInPlace(run, message.head.header.sequence)) parts_.parking.Park();
  return OkStatus();
}

Status Dispatch::On(wire::Register request, Message& message) {
  return parts_.functions.Register(std::move(request), message.frames);
}

Status Dispatch::On(wire::RegisterPlan plan, Message&) { return parts_.programs.Register(std::move(plan)); }

Status Dispatch::On(wire::Unregister request, Message&) {
  parts_.functions.Unregister(request.functions);
  parts_.programs.Unregister(request.programs);
  return OkStatus();
}

Status Dispatch::On(const wire::Put& put, Message&) { return parts_.buffers.Put(put); }

Status Dispatch::On(const wire::Expect& expect, Message&) { return parts_.buffers.Expect(expect); }

Status Dispatch::On(wire::Fetch fetch, Message&) {
  parts_.buffers.Fetch(fetch);
  return OkStatus();
}

Status Dispatch::On(const wire::Copy& copy, Message& message) {
  if (MustWait(copy)) {
    parts_.parking.Park(std::move(message.frames));
  } else {
    parts_.buffers.Copy(copy);
  }
  return OkStatus();
}

bool Dispatch::MustWait(const wire::Copy& copy) {
  // To another host the value is sent, and that waits for it.
  if (parts_.context.hands_errors_on() || !parts_.context.LocalDevice(copy.destination_device).ok()) return false;
  const std::shared_ptr<store::Object> source = parts_.context.store().Find(copy.source);
  return source != nullptr && parts_.launcher.MustArrive(*source);
}

Status Dispatch::On(const wire::Free& free, Message&) {
  parts_.buffers.Free(free);
  return OkStatus();
}

Status Dispatch::On(const wire::Spill& spill, Message&) {
  parts_.spills.Spill(spill);
  return OkStatus();
}

Status Dispatch::On(const wire::Restore& restore, Message&) {
  parts_.spills.Restore(restore);
  return OkStatus();
}

Status Dispatch::On(wire::Save save, Message&) {
  parts_.files.Save(std::move(save));
  return OkStatus();
}

Status Dispatch::On(wire::Load load, Message&) {
  parts_.files.Load(std::move(load));
  return OkStatus();
}

Status Dispatch::On(const wire::OpenPipeline& open, Message& message) {
  parts_.pipelines.Open(open, message.frames.size() == 2 ? &message.frames[1] : nullptr);
  return OkStatus();
}

Status Dispatch::On(const wire::Feed& feed, Message&) {
  parts_.pipelines.Feed(feed);
  return OkStatus();
}

Status Dispatch::On(wire::ClosePipeline close, Message&) {
  parts_.pipelines.Close(close.pipeline);
  return OkStatus();
}

Status Dispatch::On(wire::Query query, Message&) {
  parts_.queries.Answer(query);
  return OkStatus();
}

Status Dispatch::On(const wire::Welcome& welcome, Message&) { return parts_.membership.Welcome(welcome); }

Status Dispatch::On(const wire::Topology& topology, Message&) {
  parts_.membership.Topology(topology.hosts, topology.identities);
  return OkStatus();
}

Status Dispatch::On(const wire::HostLost& lost, Message&) {
  parts_.membership.HostLost(lost);
  return OkStatus();
}

Status Dispatch::On(wire::TransferFailed failed, Message& message) {
  // The controller says in the sequence who told it: a host, plus one, or the client whose key it is.
  const uint64_t from = message.head.header.sequence;
  parts_.incoming.FailTransfer(failed.key, from == 0 ? kFromClient : static_cast<uint32_t>(from - 1),
                               std::move(failed.status));
  return OkStatus();
}

Status Dispatch::On(const wire::Rotate& rotate, Message&) { return parts_.membership.Rotate(rotate); }

Status Dispatch::On(const wire::Abort& abort, Message&) {
  parts_.gangs.Abort(abort);
  return OkStatus();
}

Status Dispatch::On(wire::OwnerGone gone, Message&) {
  const uint32_t client = gone.client;
  const Status status = GoneText(client);
  const size_t removed = parts_.context.store().RemoveClient(client);
  parts_.programs.ForgetClient(client);
  parts_.functions.ForgetClient(client);
  parts_.pipelines.CloseOf(client);
  parts_.incoming.FailOfClient(client, status, gone.session);
  parts_.data.PeerLost(dataplane::DataPlane::PeerOfClient(client), status, gone.session);
  // A client that was killed leaves its shared memory behind. Another host of its machine may have removed it before.
  if (gone.session != 0) (void)transport::CleanUpOwner(parts_.context.cluster(), gone.session);
  parts_.context.Log("collected " + std::to_string(removed) + " buffers of client " + std::to_string(client),
                     logging::Level::kInfo);
  return OkStatus();
}

Status Dispatch::On(const wire::Reject& reject, Message&) {
  parts_.stopper.Stop(kExitRefused, "the controller refused this worker: " + reject.status.ToString());
  return OkStatus();
}

Status Dispatch::On(Bare<Type::kHeartbeat>, Message&) { return OkStatus(); }

Status Dispatch::On(Bare<Type::kGoodbye>, Message&) {
  parts_.stopper.Stop(kExitOk, "");
  return OkStatus();
}

}  // namespace pathways::worker
