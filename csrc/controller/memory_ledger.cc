#include "csrc/controller/memory_ledger.h"

#include <algorithm>

#include "csrc/wire/bodies.h"

namespace pathways::controller {

MemoryLedger::Answer MemoryLedger::Ask(const MemoryRequest& request, uint64_t now_ms) {
  bool in_place = books_.Evaluate(request, false);
  if (request.residents && !(in_place && books_.Fits(request.client))) in_place = books_.Evaluate(request, true);
  auto waiter = waiters_.empty() ? waiters_.end() : waiters_.find(request.client);
  if (waiter != waiters_.end() && waiter->second.request.id != request.id) {
    RemoveWaiter(request.client);
    waiter = waiters_.end();
  }
  const bool let_through = waiter != waiters_.end() && waiter->second.let_through;
  if (in_place && (let_through || books_.Fits(request.client))) {
    if (waiter != waiters_.end()) RemoveWaiter(request.client);
    if (let_through && request.is_run) {
      std::vector<uint64_t>& made = let_through_[request.id];
      for (const MemoryRequest::Made& item : request.made) made.push_back(item.buffer);
    }
    const size_t ordered = orders_.size();
    books_.Enter(request, &orders_);
    for (size_t i = ordered; i < orders_.size(); ++i) restores_ += orders_[i].buffers.size();
    return Answer::kFits;
  }
  if (books_.NeverFits()) {
    if (waiter != waiters_.end()) RemoveWaiter(request.client);
    books_.GiveUp(request);
    return Answer::kNever;
  }
  if (waiter == waiters_.end()) {
    ++waits_;
    Waiter& fresh = waiters_[request.client];
    fresh.request = request;
    fresh.since_ms = now_ms;
    fresh.order = ++arrivals_;
    fresh.looked_at = books_.generation();
  }
  return Answer::kWait;
}

void MemoryLedger::Hold(const MemoryRequest& request) {
  Held held{request, {}};
  for (const uint32_t d : books_.touched()) {  // of this request: Ask has just looked at it
    const MemoryBooks::Device& device = books_.devices()[d];
    const int64_t credit = std::min(device.made, device.donated);
    if (credit <= 0 || !limited(device.host)) continue;
    held.credit.push_back({d, credit});
    books_.Discount(d, credit);
  }
  books_.Pin(request, 1);
  held_[request.client] = std::move(held);
}

MemoryRequest MemoryLedger::TakeHeld(uint32_t client) {
  Held held = std::move(held_.extract(client).mapped());
  for (const MemoryRequest::Scratch& credit : held.credit) {
    if (limited(books_.devices()[credit.device].host)) books_.Discount(credit.device, -credit.bytes);
  }
  books_.Pin(held.request, -1);
  return std::move(held.request);
}

bool MemoryLedger::IsHeld(uint32_t client, uint64_t id) const {
  auto it = held_.find(client);
  return it != held_.end() && it->second.request.id == id;
}

bool MemoryLedger::StartHeld(uint32_t client, uint64_t id) {
  if (held_.empty() || !IsHeld(client, id)) return false;
  Start(TakeHeld(client));
  return true;
}

void MemoryLedger::Cancel(uint32_t client) {
  if (waiters_.contains(client)) RemoveWaiter(client);
  if (!held_.contains(client)) return;
  const MemoryRequest request = TakeHeld(client);
  std::vector<uint64_t> made;
  for (const MemoryRequest::Made& item : request.made) made.push_back(item.buffer);
  for (const uint32_t host : request.hosts) Free(host, made);
  books_.EndRun(request.id);
}

void MemoryLedger::RemoveWaiter(uint32_t client) {
  waiters_.erase(client);
  books_.OpenFrom(client);
  books_.Freed();  // what it had reserved is open to others
}

void MemoryLedger::PartDone(uint64_t run, uint32_t host, bool ok) {
  if (!let_through_.empty()) {
    // Refused, as was to be expected: it has made nothing.
    if (auto made = let_through_.extract(run); !made.empty() && !ok) Free(host, made.mapped());
  }
  books_.EndPart(run, host);
}

void MemoryLedger::DropClient(uint32_t client) {
  Cancel(client);
  books_.FreeClient(client);
}

// --- the status

MemoryLedger::DeviceBooks MemoryLedger::books(uint32_t device) const {
  if (device >= books_.devices().size()) return {};
  const MemoryBooks::Device& found = books_.devices()[device];
  return {found.limit, found.used, found.running};
}

MemoryLedger::ClientBooks MemoryLedger::client_books(uint32_t client) const {
  ClientBooks sums;
  for (const MemoryBooks::Host& host : books_.hosts()) {
    for (const auto& [id, entry] : host.buffers) {
      if (wire::ClientOf(id) != client) continue;
      (entry.place == MemoryBooks::Place::kStaged ? sums.staged : sums.bytes) += entry.total();
    }
  }
  return sums;
}

std::string MemoryLedger::HostJson(uint32_t index) const {
  std::string out = "[";
  if (index < books_.hosts().size()) {
    const MemoryBooks::Host& host = books_.hosts()[index];
    for (uint32_t d = host.first_device; d < host.first_device + host.device_count; ++d) {
      const DeviceBooks device = books(d);
      out += std::string(out.size() > 1 ? ", " : "") + "{\"limit\": " + std::to_string(device.limit) +
             ", \"used\": " + std::to_string(device.used) + ", \"running\": " + std::to_string(device.running) + "}";
    }
  }
  return out + "]";
}

}  // namespace pathways::controller
