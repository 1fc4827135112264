#include "csrc/worker/launcher.h"

namespace pathways::worker {

bool Launcher::IsFull(const std::vector<uint32_t>& devices) {
  for (const uint32_t device : devices) {
    const Result<size_t> local = context_.LocalDevice(device);
    if (local.ok() && room_->Refuses(*local)) return true;
  }
  return false;
}

bool Launcher::MustArrive(store::Object& value, bool surely) {
  if (context_.hands_errors_on() || !value.error.ok()) return false;
  const bool all = surely || context_.enqueue_ahead() == EnqueueAhead::kAfterArguments;
  for (size_t i = 0; i < value.shards.size(); ++i) {
    pjrt::Buffer& buffer = value.At(i).buffer;
    if (!buffer.valid()) continue;
    bool failed = false;
    if (all || buffer.arrives()) {
      const Result<pjrt::EventHandle> ready = buffer.ReadyEvent();
      if (ready.ok() && !ready->IsReady()) {
        ready->OnReady([room = room_](const Status&) { room->Wake(); });
        return true;
      }
      failed = !ready.ok() || !ready->Await().ok();
      if (!failed) buffer.NoteArrived();
    }
    // Whoever reads it is told why it failed, or that it has; that is known when the run that makes it has ended.
    const std::shared_ptr<store::Origin>& origin = value.OriginOf(i);
    if ((all || failed) && origin != nullptr && !origin->ended) {
      origin->dependents.push_back([room = room_] { room->Wake(); });
      return true;
    }
  }
  return false;
}

Launcher::Arguments& Launcher::Begin(size_t rows, size_t positions) {
  if (arguments_.rows.size() < rows) arguments_.rows.resize(rows);
  for (size_t row = 0; row < rows; ++row) arguments_.rows[row].resize(positions);
  arguments_.non_donatable.clear();
  return arguments_;
}

Status Launcher::Enqueue(const Function& function, const Launch& launch) {
  const int64_t enqueued_ns = launch.times ? launch.times->NowNs() : 0;
  const size_t rows = function.local.size();
  spans_.clear();
  for (size_t row = 0; row < rows; ++row) spans_.emplace_back(arguments_.rows[row]);
  const std::vector<int64_t>& kept = arguments_.non_donatable;
  const Computation& computation = *function.computation;
  PW_RETURN_IF_ERROR(computation.is_spanning()
                         ? gangs_.Launch(function, spans_, kept, launch.run, launch.id, &outputs_)
                         : computation.Launch(spans_, static_cast<int>(launch.device), kept, launch.id, {}, &outputs_));
  const bool one_device = function.request.one_device;
  for (size_t row = 0; row < rows; ++row) {
    const size_t device =
        one_device ? launch.device : function.request.devices[function.local[row]] - context_.first_device();
    NoteEnd(row, device, launch, enqueued_ns);
  }
  return OkStatus();
}

// Counts the execution of a row while it is under way, and notes when it has ended.
void Launcher::NoteEnd(size_t row, size_t device, const Launch& launch, int64_t enqueued_ns) {
  const std::shared_ptr<RunTimes::Run>& times = launch.times;
  const bool ended = outputs_.done[row].IsReady();
  if (ended && times == nullptr) return;  // what comes next is enqueued later: no need to note it
  RunTimes::Span* const span = times ? times->Add(launch.step, device, enqueued_ns) : nullptr;
  if (ended) {  // it ran within the launch; whatever comes next on this device is enqueued later
    times->read_ns = SteadyNs();
    if (span != nullptr) span->End(0, times->read_ns);
    return;
  }
  room_->Enter(device);
  if (span != nullptr) {
    times->read_ns = 0;
    times->writers.fetch_add(1, std::memory_order_relaxed);
  }
  outputs_.done[row].OnReady([room = room_, ends = ends_, device, times, span](const Status& status) {
    const int64_t now = SteadyNs();
    const int64_t before = ends->Exchange(device, now);
    if (span != nullptr) {
      if (status.ok()) span->End(before, now);
      times->Written();
    }
    room->Leave(device);
  });
}

}  // namespace pathways::worker
