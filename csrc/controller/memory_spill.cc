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

std::vector<MemoryLedger::Order> MemoryLedger::TakeOrders() { return std::exchange(orders_, {}); }

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
    if (waiter.looked_at == generation_) continue;
    waiter.looked_at = generation_;
    if (Evaluate(waiter.request, true) && (waiter.let_through || FitsTouched(client))) return client;
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
  AgeResidents();
  Evaluate(waiter.request, true);
  const bool lost_patience = waiter.spilled_ms != 0 &&
                             now_ms >= waiter.spilled_ms + kPatience * std::max<uint64_t>(options_.spill_after_ms, 1);
  std::vector<std::pair<uint32_t, int64_t>> missing;  // device, bytes
  for (const uint32_t d : touched_) {
    const Device& device = devices_[d];
    const int64_t asked = device.asked();
    if (device.limit == 0 || asked <= 0) continue;
    if (device.closed_for != 0 && device.closed_for != client) return;  // an older one is next here
    // Runs in flight end by themselves, so what they need meanwhile is not missing.
    const int64_t more = device.used - (lost_patience ? 0 : device.leaving) + asked - device.limit;
    if (more > 0) missing.emplace_back(d, more);
  }
  std::vector<Order> orders;
  if (!missing.empty() && !ChooseVictims(client, missing, orders)) {
    const bool only_own = std::all_of(missing.begin(), missing.end(),
                                      [&](const auto& item) { return OnlyOwnBuffers(client, item.first); });
    if (only_own && now_ms >= waiter.since_ms + options_.refuse_after_ms) {
      waiter.let_through = true;
      Freed();
    }
    return;
  }
  for (const uint32_t d : touched_) {
    if (devices_[d].limit != 0 && devices_[d].asked() > 0) devices_[d].closed_for = client;
  }
  if (orders.empty()) return;
  waiter.spilled_ms = now_ms;
  for (Order& order : orders) {
    Host& host = hosts_[order.host];
    for (const uint64_t id : order.buffers) {
      Entry& entry = host.buffers.at(id);
      entry.place = Place::kLeaving;
      host.staged += entry.total();
      ForDevices(entry, [&](uint32_t device) { devices_[device].leaving += entry.bytes; });
    }
    spills_ += order.buffers.size();
    orders_.push_back(std::move(order));
  }
}

// Buffers that the waiter does not name: those of clients that wait themselves first, then those of others, its own
// last; among these the least recently named first. False when they are not enough.
bool MemoryLedger::ChooseVictims(uint32_t client, std::vector<std::pair<uint32_t, int64_t>> missing,
                                 std::vector<Order>& orders) {
  for (size_t next = 0; next < missing.size(); ++next) {
    const auto [d, bytes] = missing[next];
    if (bytes <= 0) continue;
    const uint32_t index = devices_[d].host;
    Host& host = hosts_[index];
    int64_t room = host.staging_limit - host.staged;
    auto order = std::find_if(orders.begin(), orders.end(), [&](const Order& o) { return o.host == index; });
    if (order == orders.end()) {
      orders.push_back({index, false, {}});
      order = std::prev(orders.end());
    }
    for (const uint64_t id : order->buffers) room -= host.buffers.at(id).total();
    using Rank = std::tuple<int, bool, uint64_t, uint64_t>;  // class, small, last named, id
    std::vector<Rank> candidates;
    for (const auto& [id, entry] : host.buffers) {
      if (entry.place != Place::kDevice || entry.pins > 0 || entry.missing > 0 || entry.bytes == 0) continue;
      // Seen by the evaluation just made: an argument of the waiter. (Donated ones are marked 0, but are named now.)
      if (entry.named == clock_) continue;
      bool here = entry.device == d;
      for (const uint32_t other : entry.more_devices) here = here || other == d;
      if (!here || std::find(order->buffers.begin(), order->buffers.end(), id) != order->buffers.end()) continue;
      const uint32_t owner = static_cast<uint32_t>(wire::ClientOf(id));
      const int rank = owner == client ? 2 : waiters_.contains(owner) ? 0 : 1;
      candidates.emplace_back(rank, entry.bytes < kSmallBytes, entry.named, id);
    }
    std::sort(candidates.begin(), candidates.end());
    for (const Rank& candidate : candidates) {
      if (missing[next].second <= 0) break;
      const uint64_t id = std::get<3>(candidate);
      const Entry& entry = host.buffers.at(id);
      if (entry.total() > room) continue;
      room -= entry.total();
      order->buffers.push_back(id);
      ForDevices(entry, [&](uint32_t device) {
        for (auto& [other, left] : missing) {
          if (other == device) left -= entry.bytes;
        }
      });
    }
    if (missing[next].second > 0) return false;
  }
  std::erase_if(orders, [](const Order& order) { return order.buffers.empty(); });
  return true;
}

bool MemoryLedger::OnlyOwnBuffers(uint32_t client, uint32_t d) const {
  if (devices_[d].leaving > 0) return false;  // there will be room yet
  const Host& host = hosts_[devices_[d].host];
  return std::all_of(host.buffers.begin(), host.buffers.end(), [&](const auto& item) {
    if (wire::ClientOf(item.first) == client || item.second.place == Place::kStaged) return true;
    const std::vector<uint32_t>& more = item.second.more_devices;
    return item.second.device != d && std::find(more.begin(), more.end(), d) == more.end();
  });
}

}  // namespace pathways::controller
