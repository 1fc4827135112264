#include "csrc/worker/gang_gate.h"

#include <deque>
#include <mutex>

#include "csrc/base/thread_annotations.h"

namespace pathways::worker {

struct GangGate::Entry {
  GangPtr gang;
  uint32_t shard = 0;  // read by the plugin until the transfer is done
  // Guarded by the lane's mutex:
  std::shared_ptr<pjrt::AsyncBuffer> fill;
  bool begun = false;
  bool ended = false;  // perhaps before its turn
};

struct GangGate::Lane {
  int device = 0;
  GangTurns* turns = nullptr;
  std::mutex mutex;
  std::deque<std::shared_ptr<Entry>> waiting PW_GUARDED_BY(mutex);  // its front has its turn
  // Not to be destroyed on the plugin's threads.
  std::vector<std::shared_ptr<pjrt::AsyncBuffer>> spent PW_GUARDED_BY(mutex);
};

GangGate::GangGate(std::shared_ptr<pjrt::Client> client, GangTurns* turns) : client_(std::move(client)) {
  for (size_t d = 0; d < client_->devices().size(); ++d) {
    auto lane = std::make_shared<Lane>();
    lane->device = static_cast<int>(d);
    lane->turns = turns;
    lanes_.push_back(std::move(lane));
  }
}

GangGate::~GangGate() {
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    for (const auto& entry : lane->waiting) {
      if (entry->begun || entry->ended) continue;
      lane->spent.push_back(std::move(entry->fill));
      entry->ended = true;  // nobody may start it any more
    }
  }
  for (const auto& lane : lanes_) lane->spent.clear();
}

Result<GangGate::Ticket> GangGate::Issue(int device) {
  static const TensorType kNumber{DType::kU32, {}};
  Lane& lane = *lanes_[static_cast<size_t>(device)];
  std::vector<std::shared_ptr<pjrt::AsyncBuffer>> spent;
  {
    const std::lock_guard lock(lane.mutex);
    spent.swap(lane.spent);
  }
  Ticket ticket;
  PW_ASSIGN_OR_RETURN(auto fill, client_->CreateAsyncBuffer(kNumber, device));
  PW_ASSIGN_OR_RETURN(ticket.buffer_, fill->TakeBuffer());
  ticket.fill_ = std::move(fill);
  return ticket;
}

void GangGate::Enter(int device, Ticket ticket, GangPtr gang, uint32_t shard, const pjrt::EventHandle& done) {
  const std::shared_ptr<Lane>& lane = lanes_[static_cast<size_t>(device)];
  auto entry = std::make_shared<Entry>();
  entry->gang = std::move(gang);
  entry->shard = shard;
  entry->fill = std::move(ticket.fill_);
  std::shared_ptr<pjrt::AsyncBuffer> fill;
  {
    const std::lock_guard lock(lane->mutex);
    entry->begun = lane->waiting.empty();
    if (entry->begun) fill = entry->fill;
    lane->waiting.push_back(entry);
  }
  if (fill != nullptr) Start(*lane, entry, fill);
  // After Start: an execution that has failed already, for want of an argument, ends within this call.
  done.OnReady([lane, entry](const Status& status) { Ended(lane, entry, status); });
}

void GangGate::Start(Lane& lane, std::shared_ptr<Entry> entry, const std::shared_ptr<pjrt::AsyncBuffer>& fill) {
  lane.turns->Begin(lane.device, entry->gang, entry->shard);
  const uint32_t* const shard = &entry->shard;
  fill->Transfer(shard, sizeof *shard, 0, true, [entry = std::move(entry)](const Status&) {});
}

void GangGate::Ended(const std::shared_ptr<Lane>& lane, const std::shared_ptr<Entry>& entry, const Status& status) {
  bool in_its_turn;
  {
    const std::lock_guard lock(lane->mutex);
    entry->ended = true;
    in_its_turn = entry->begun;
    lane->spent.push_back(std::move(entry->fill));
  }
  if (in_its_turn) lane->turns->End(lane->device);
  if (!status.ok()) lane->turns->Failed(entry->gang, status);
  if (!in_its_turn) return;  // its turn is passed over when it comes
  std::shared_ptr<Entry> next;
  std::shared_ptr<pjrt::AsyncBuffer> fill;
  {
    const std::lock_guard lock(lane->mutex);
    while (!lane->waiting.empty() && lane->waiting.front()->ended) lane->waiting.pop_front();
    if (lane->waiting.empty()) return;
    next = lane->waiting.front();
    next->begun = true;
    fill = next->fill;
  }
  Start(*lane, std::move(next), fill);
}

}  // namespace pathways::worker
