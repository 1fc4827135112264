// MemoryLedger: who goes next, and whose buffers make room.
//
// Waiters are served by age. One that has waited long enough, and that no older one keeps out, becomes the next on its
// devices: they are closed to everybody else, and buffers it does not name are spilled until it fits. In-flight runs
// end and spills are answered without anybody's help, so it goes on; then the devices open again. When not enough can
// be spilled the devices stay open, because then only the others can free memory.
#include <algorithm>
#include <tuple>

#include "csrc/controller/memory_ledger.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {
namespace {

// Spilling one of these is hardly worth its message.
constexpr int64_t kSmallBytes = 64 << 10;
// A spill that takes longer than so many waits is not counted on any more: its buffer may wait for bytes that a client
// never sends.
constexpr uint64_t kPatience = 10;

}  // namespace

std::vector<uint32_t> MemoryLedger::WaitersByAge() const {
  std::vector<std::pair<uint64_t, uint32_t>> aged;
  for (const auto& [client, waiter] : waiters_) aged.emplace_back(waiter.order, client);
  std::sort(aged.begin(), aged.end());
  std::vector<uint32_t> clients;
  for (const auto& [order, client] : aged) clients.push_back(client);
  return clients;
}

std::optional<uint32_t> MemoryLedger::TakeReady() {
  if (waiters_.empty()) return std::nullopt;
  for (const uint32_t client : WaitersByAge()) {
    Waiter& waiter = waiters_.at(client);
    if (waiter.looked_at == books_.generation()) continue;
    waiter.looked_at = books_.generation();
    if (books_.Evaluate(waiter.request, true) && (waiter.let_through || books_.Fits(client))) return client;
  }
  return std::nullopt;
}

void MemoryLedger::Tick(uint64_t now_ms) {
  for (const uint32_t client : WaitersByAge()) {
    Waiter& waiter = waiters_.at(client);
    if (now_ms < waiter.since_ms + options_.spill_after_ms) continue;
    MakeRoom(client, waiter, now_ms);
  }
}

void MemoryLedger::MakeRoom(uint32_t client, Waiter& waiter, uint64_t now_ms) {
  books_.AgeResidents();
  books_.Evaluate(waiter.request, true);
  const bool lost_patience = waiter.spilled_ms != 0 &&
                             now_ms >= waiter.spilled_ms + kPatience * std::max<uint64_t>(options_.spill_after_ms, 1);
  std::vector<uint32_t> growing;  // devices with a limit, of which it asks something
  std::vector<Missing> missing;
  for (const uint32_t d : books_.touched()) {
    const MemoryBooks::Device& device = books_.devices()[d];
    const int64_t asked = device.asked();
    if (device.limit == 0 || asked <= 0) continue;
    if (device.closed_for != 0 && device.closed_for != client) return;  // an older one is next here
    growing.push_back(d);
    // Runs in flight end by themselves, so what they need meanwhile is not missing.
    const int64_t more = device.used - (lost_patience ? 0 : device.leaving) + asked - device.limit;
    if (more > 0) missing.push_back({d, more});
  }
  std::vector<MemoryOrder> orders;
  if (!missing.empty() && !ChooseVictims(client, missing, orders)) {
    const bool only_own = std::all_of(missing.begin(), missing.end(),
                                      [&](const Missing& item) { return OnlyOwnBuffers(client, item.device); });
    if (only_own && now_ms >= waiter.since_ms + options_.refuse_after_ms) {
      waiter.let_through = true;
      books_.Freed();
    }
    return;
  }
  for (const uint32_t d : growing) books_.CloseFor(d, client);
  if (orders.empty()) return;
  waiter.spilled_ms = now_ms;
  for (MemoryOrder& order : orders) {
    books_.Leave(order);
    spills_ += order.buffers.size();
    orders_.push_back(std::move(order));
  }
}

// Buffers that the waiter does not name: those of clients that wait themselves first, then those of others, its own
// last; among these the least recently named first.
std::vector<uint64_t> MemoryLedger::Candidates(uint32_t client, uint32_t device) const {
  using Rank = std::tuple<int, bool, uint64_t, uint64_t>;  // class, small, last named, id
  std::vector<Rank> ranked;
  for (const auto& [id, entry] : books_.hosts()[books_.devices()[device].host].buffers) {
    if (entry.place != MemoryBooks::Place::kDevice || entry.pins > 0 || entry.missing > 0 || entry.bytes == 0) continue;
    if (books_.IsNamed(entry) || !entry.IsOn(device)) continue;
    const uint32_t owner = static_cast<uint32_t>(wire::ClientOf(id));
    const int rank = owner == client ? 2 : waiters_.contains(owner) ? 0 : 1;
    ranked.emplace_back(rank, entry.bytes < kSmallBytes, entry.named, id);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<uint64_t> ids;
  for (const Rank& one : ranked) ids.push_back(std::get<3>(one));
  return ids;
}

// False when they are not enough.
bool MemoryLedger::ChooseVictims(uint32_t client, std::vector<Missing> missing,
                                 std::vector<MemoryOrder>& orders) const {
  for (const Missing& here : missing) {
    if (here.bytes <= 0) continue;
    const uint32_t index = books_.devices()[here.device].host;
    const MemoryBooks::Host& host = books_.hosts()[index];
    int64_t room = host.staging_limit - host.staged;
    auto order = std::find_if(orders.begin(), orders.end(), [&](const MemoryOrder& o) { return o.host == index; });
    if (order == orders.end()) {
      orders.push_back({index, false, {}});
      order = std::prev(orders.end());
    }
    for (const uint64_t id : order->buffers) room -= host.buffers.at(id).total();
    for (const uint64_t id : Candidates(client, here.device)) {
      if (here.bytes <= 0) break;
      const MemoryBooks::Entry& entry = host.buffers.at(id);
      const bool chosen = std::find(order->buffers.begin(), order->buffers.end(), id) != order->buffers.end();
      if (chosen || entry.total() > room) continue;
      room -= entry.total();
      order->buffers.push_back(id);
      for (Missing& other : missing) {
        if (entry.IsOn(other.device)) other.bytes -= entry.bytes;
      }
    }
    if (here.bytes > 0) return false;
  }
  std::erase_if(orders, [](const MemoryOrder& order) { return order.buffers.empty(); });
  return true;
}

bool MemoryLedger::OnlyOwnBuffers(uint32_t client, uint32_t device) const {
  if (books_.devices()[device].leaving > 0) return false;  // there will be room yet
  const MemoryBooks::Host& host = books_.hosts()[books_.devices()[device].host];
  return std::all_of(host.buffers.begin(), host.buffers.end(), [&](const auto& item) {
    const auto& [id, entry] = item;
    return wire::ClientOf(id) == client || entry.place == MemoryBooks::Place::kStaged || !entry.IsOn(device);
  });
}

}  // namespace pathways::controller
