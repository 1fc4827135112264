#include "csrc/controller/memory_ledger.h"

#include <algorithm>

#include "csrc/wire/bodies.h"

namespace pathways::controller {
namespace {

// Sizes that a client claims may add up to more than a number holds; beyond this a sum is as good as endless, and a few
// of them can still be added.
constexpr int64_t kEndless = int64_t{1} << 59;

void Add(int64_t& sum, int64_t bytes) { sum = std::min(sum + std::min(bytes, kEndless), kEndless); }

}  // namespace

void MemoryRequest::Clear() {
  id = 0;
  client = 0;
  is_run = false;
  hosts.clear();
  arguments.clear();
  donated.clear();
  residents.reset();
  made.clear();
  devices.clear();
  scratch.clear();
}

void MemoryRequest::MakeOne(uint64_t buffer, int64_t bytes, uint32_t device, uint32_t others_here) {
  made.push_back({buffer, bytes, static_cast<uint32_t>(devices.size()), 1, others_here});
  devices.push_back(device);
}

void MemoryLedger::AddHost(uint32_t index, uint32_t first_device, std::span<const int64_t> limits,
                           int64_t staging_limit) {
  if (hosts_.size() <= index) hosts_.resize(index + 1);
  Host& host = hosts_[index];
  host.first_device = first_device;
  host.device_count = static_cast<uint32_t>(limits.size());
  host.staging_limit = staging_limit;
  if (devices_.size() < first_device + limits.size()) devices_.resize(first_device + limits.size());
  for (size_t d = 0; d < limits.size(); ++d) {
    devices_[first_device + d].limit = limits[d];
    devices_[first_device + d].host = index;
    host.limited = host.limited || limits[d] > 0;
  }
}

void MemoryLedger::RemoveHost(uint32_t index) {
  if (!limited(index)) return;
  Host& host = hosts_[index];
  host.buffers.clear();
  host.limited = false;
  host.staged = 0;
  for (uint32_t d = host.first_device; d < host.first_device + host.device_count; ++d) {
    devices_[d].used = devices_[d].running = devices_[d].leaving = 0;
  }
  for (auto it = running_.begin(); it != running_.end();) {
    std::erase_if(it->second.scratch, [&](const auto& scratch) { return devices_[scratch.device].host == index; });
    it = it->second.scratch.empty() ? running_.erase(it) : std::next(it);
  }
  Freed();
}

// --- looking at a request

void MemoryLedger::Touch(uint32_t device) {
  if (devices_[device].touched) return;
  devices_[device].touched = true;
  touched_.push_back(device);
}

void MemoryLedger::ResetTouched() {
  for (const uint32_t d : touched_) {
    Device& device = devices_[d];
    device.touched = false;
    device.arguments = device.restored = device.made = device.donated = device.scratch = 0;
  }
  touched_.clear();
}

bool MemoryLedger::EvaluateArgument(Host& host, uint64_t argument) {
  auto it = host.buffers.find(argument);
  if (it == host.buffers.end() || it->second.seen == evaluation_) return false;
  Entry& entry = it->second;
  entry.seen = evaluation_;
  entry.named = clock_;
  ForDevices(entry, [&](uint32_t device) {
    Touch(device);
    Add(devices_[device].arguments, entry.bytes);
    if (entry.place == Place::kStaged) Add(devices_[device].restored, entry.bytes);
  });
  return entry.place == Place::kLeaving;
}

bool MemoryLedger::Evaluate(const MemoryRequest& request, bool thorough) {
  ResetTouched();
  ++evaluation_;
  ++clock_;
  bool leaving = false;
  if (Residents* residents = request.residents.get()) {
    residents->named = clock_;
    if (!residents->known) {
      residents->known = true;
      std::erase_if(residents_, [](const auto& known) { return known.expired(); });
      residents_.push_back(request.residents);
    }
  }
  for (const uint32_t index : request.hosts) {
    if (!limited(index)) continue;
    Host& host = hosts_[index];
    for (const uint64_t argument : request.arguments) leaving |= EvaluateArgument(host, argument);
    if (request.residents && (thorough || host.staged > 0)) {
      for (const uint64_t argument : request.residents->buffers) leaving |= EvaluateArgument(host, argument);
    }
    for (const uint64_t donated : request.donated) {
      auto it = host.buffers.find(donated);
      if (it == host.buffers.end() || it->second.seen != evaluation_) continue;
      it->second.seen = 0;  // counted once
      ForDevices(it->second, [&](uint32_t device) { Add(devices_[device].donated, it->second.bytes); });
    }
  }
  for (const MemoryRequest::Made& made : request.made) {
    for (uint32_t i = made.first_device; i < made.first_device + made.device_count; ++i) {
      Touch(request.devices[i]);
      Add(devices_[request.devices[i]].made, made.bytes);
    }
  }
  for (const MemoryRequest::Scratch& scratch : request.scratch) {
    Touch(scratch.device);
    Add(devices_[scratch.device].scratch, scratch.bytes);
  }
  return !leaving;
}

bool MemoryLedger::FitsTouched(uint32_t client) const {
  for (const uint32_t d : touched_) {
    const Device& device = devices_[d];
    const int64_t asked = device.asked();
    if (device.limit == 0 || asked <= 0) continue;
    if (device.used + device.running + asked > device.limit) return false;
    if (device.closed_for != 0 && device.closed_for != client) return false;
  }
  return true;
}

bool MemoryLedger::NeverFitsTouched() const {
  return std::any_of(touched_.begin(), touched_.end(), [this](uint32_t d) {
    const Device& device = devices_[d];
    return device.limit != 0 && device.arguments + device.asked() - device.restored > device.limit;
  });
}

void MemoryLedger::AgeResidents() {
  for (const std::weak_ptr<Residents>& known : residents_) {
    const std::shared_ptr<Residents> residents = known.lock();
    if (residents == nullptr) continue;
    for (const uint64_t id : residents->buffers) {
      for (Host& host : hosts_) {
        if (auto it = host.buffers.find(id); it != host.buffers.end()) {
          it->second.named = std::max(it->second.named, residents->named);
        }
      }
    }
  }
}

MemoryLedger::Answer MemoryLedger::Ask(const MemoryRequest& request, uint64_t now_ms) {
  bool in_place = Evaluate(request, false);
  if (request.residents && !(in_place && FitsTouched(request.client))) in_place = Evaluate(request, true);
  auto waiter = waiters_.empty() ? waiters_.end() : waiters_.find(request.client);
  if (waiter != waiters_.end() && waiter->second.request.id != request.id) {
    RemoveWaiter(request.client);
    waiter = waiters_.end();
  }
  const bool let_through = waiter != waiters_.end() && waiter->second.let_through;
  if (in_place && (let_through || FitsTouched(request.client))) {
    if (waiter != waiters_.end()) RemoveWaiter(request.client);
    if (let_through && request.is_run) {
      std::vector<uint64_t>& made = let_through_[request.id];
      for (const MemoryRequest::Made& item : request.made) made.push_back(item.buffer);
    }
    Enter(request);
    return Answer::kFits;
  }
  if (NeverFitsTouched()) {
    if (waiter != waiters_.end()) RemoveWaiter(request.client);
    GiveUp(request);
    return Answer::kNever;
  }
  if (waiter == waiters_.end()) {
    ++waits_;
    Waiter& fresh = waiters_[request.client];
    fresh.request = request;
    fresh.since_ms = now_ms;
    fresh.order = ++arrivals_;
    fresh.looked_at = generation_;
  }
  return Answer::kWait;
}

// --- entering and erasing

void MemoryLedger::Return(Host& host, uint64_t argument, Order& order) {
  auto it = host.buffers.find(argument);
  if (it == host.buffers.end() || it->second.place != Place::kStaged) return;
  Entry& entry = it->second;
  entry.place = Place::kDevice;
  host.staged -= entry.total();
  ForDevices(entry, [&](uint32_t device) { devices_[device].used += entry.bytes; });
  order.buffers.push_back(argument);
}

void MemoryLedger::Enter(const MemoryRequest& request) {
  for (const uint32_t index : request.hosts) {
    if (!limited(index)) continue;
    Host& host = hosts_[index];
    Order order{index, true, {}};
    for (const uint64_t argument : request.arguments) Return(host, argument, order);
    if (request.residents && host.staged > 0) {
      for (const uint64_t argument : request.residents->buffers) Return(host, argument, order);
    }
    if (order.buffers.empty()) continue;
    restores_ += order.buffers.size();
    orders_.push_back(std::move(order));
  }
  for (const MemoryRequest::Made& made : request.made) {
    Entry* entry = nullptr;
    uint32_t of_host = UINT32_MAX;
    for (uint32_t i = made.first_device; i < made.first_device + made.device_count; ++i) {
      const uint32_t device = request.devices[i];
      const uint32_t index = devices_[device].host;
      if (!limited(index)) continue;
      if (index == of_host) {
        entry->more_devices.push_back(device);
      } else {
        auto [it, fresh] = hosts_[index].buffers.try_emplace(made.buffer);
        of_host = index;
        entry = &it->second;
        if (fresh) {
          entry->bytes = made.bytes;
          entry->device = device;
          entry->named = clock_;
          entry->missing = made.others_here;
        } else if (entry->missing > 0 && entry->bytes == made.bytes) {
          --entry->missing;
          entry->more_devices.push_back(device);
        } else {
          break;  // an id is minted once; the worker refuses the second
        }
      }
      devices_[device].used += made.bytes;
    }
  }
  for (const MemoryRequest::Scratch& scratch : request.scratch) {
    if (!limited(devices_[scratch.device].host)) continue;
    devices_[scratch.device].running += scratch.bytes;
    running_[request.id].scratch.push_back(scratch);
  }
}

void MemoryLedger::GiveUp(const MemoryRequest& request) {
  if (request.donated.empty()) return;
  for (const uint32_t host : request.hosts) {
    if (!limited(host)) continue;
    for (const uint64_t donated : request.donated) Erase(hosts_[host], donated);
  }
}

void MemoryLedger::Start(const MemoryRequest& request) { GiveUp(request); }

void MemoryLedger::Pin(const MemoryRequest& request, int by) {
  for (const uint32_t host : request.hosts) {
    if (!limited(host)) continue;
    const auto pin = [&](uint64_t id) {
      auto it = hosts_[host].buffers.find(id);
      if (it != hosts_[host].buffers.end()) it->second.pins += by;
    };
    std::for_each(request.arguments.begin(), request.arguments.end(), pin);
    if (request.residents) std::for_each(request.residents->buffers.begin(), request.residents->buffers.end(), pin);
    for (const MemoryRequest::Made& made : request.made) pin(made.buffer);
  }
}

void MemoryLedger::Hold(const MemoryRequest& request) {
  Held held{request, {}};
  for (const uint32_t d : touched_) {  // of this request: Ask has just looked at it
    Device& device = devices_[d];
    const int64_t credit = std::min(device.made, device.donated);
    if (credit <= 0 || !limited(device.host)) continue;
    held.credit.push_back({d, credit});
    device.used -= credit;
  }
  Pin(request, 1);
  held_[request.client] = std::move(held);
}

MemoryRequest MemoryLedger::TakeHeld(uint32_t client) {
  Held held = std::move(held_.extract(client).mapped());
  for (const MemoryRequest::Scratch& credit : held.credit) {
    if (limited(devices_[credit.device].host)) devices_[credit.device].used += credit.bytes;
  }
  Pin(held.request, -1);
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
  for (const uint32_t host : request.hosts) {
    if (!limited(host)) continue;
    for (const MemoryRequest::Made& made : request.made) Erase(hosts_[host], made.buffer);
  }
  EndRun(request.id);
}

void MemoryLedger::RemoveWaiter(uint32_t client) {
  waiters_.erase(client);
  for (Device& device : devices_) {
    if (device.closed_for == client) device.closed_for = 0;
  }
  Freed();  // what it had reserved is open to others
}

void MemoryLedger::Forget(Host& host, const Entry& entry) {
  if (entry.place != Place::kDevice) host.staged -= entry.total();
  if (entry.place == Place::kStaged) return;
  ForDevices(entry, [&](uint32_t device) {
    devices_[device].used -= entry.bytes;
    if (entry.place == Place::kLeaving) devices_[device].leaving -= entry.bytes;
  });
}

void MemoryLedger::Erase(Host& host, uint64_t id) {
  auto it = host.buffers.find(id);
  if (it == host.buffers.end()) return;
  Forget(host, it->second);
  host.buffers.erase(it);
  Freed();
}

void MemoryLedger::Free(uint32_t host, std::span<const uint64_t> buffers) {
  if (!limited(host)) return;
  for (const uint64_t id : buffers) Erase(hosts_[host], id);
}

void MemoryLedger::EndRun(uint64_t run) {
  auto node = running_.extract(run);
  if (node.empty()) return;
  for (const MemoryRequest::Scratch& scratch : node.mapped().scratch) devices_[scratch.device].running -= scratch.bytes;
  Freed();
}

void MemoryLedger::PartDone(uint64_t run, uint32_t host, bool ok) {
  if (!let_through_.empty()) {
    // Refused, as was to be expected: it has made nothing.
    if (auto made = let_through_.extract(run); !made.empty() && !ok) Free(host, made.mapped());
  }
  if (running_.empty()) return;
  auto it = running_.find(run);
  if (it == running_.end()) return;
  std::erase_if(it->second.scratch, [&](const MemoryRequest::Scratch& scratch) {
    if (devices_[scratch.device].host != host) return false;
    devices_[scratch.device].running -= scratch.bytes;
    return true;
  });
  if (it->second.scratch.empty()) running_.erase(it);
  Freed();
}

void MemoryLedger::Spilled(uint32_t index, std::span<const uint64_t> buffers) {
  if (!limited(index)) return;
  Host& host = hosts_[index];
  for (const uint64_t id : buffers) {
    auto it = host.buffers.find(id);
    if (it == host.buffers.end() || it->second.place != Place::kLeaving) continue;
    Entry& entry = it->second;
    entry.place = Place::kStaged;
    ForDevices(entry, [&](uint32_t device) {
      devices_[device].used -= entry.bytes;
      devices_[device].leaving -= entry.bytes;
    });
  }
  Freed();
}

void MemoryLedger::DropClient(uint32_t client) {
  Cancel(client);
  for (Host& host : hosts_) {
    std::erase_if(host.buffers, [&](const auto& item) {
      if (wire::ClientOf(item.first) != client) return false;
      Forget(host, item.second);
      return true;
    });
  }
  Freed();
}

// --- the status

MemoryLedger::DeviceBooks MemoryLedger::books(uint32_t device) const {
  if (device >= devices_.size()) return {};
  return {devices_[device].limit, devices_[device].used, devices_[device].running};
}

MemoryLedger::ClientBooks MemoryLedger::client_books(uint32_t client) const {
  ClientBooks books;
  for (const Host& host : hosts_) {
    for (const auto& [id, entry] : host.buffers) {
      if (wire::ClientOf(id) != client) continue;
      (entry.place == Place::kStaged ? books.staged : books.bytes) += entry.total();
    }
  }
  return books;
}

std::string MemoryLedger::HostJson(uint32_t index) const {
  std::string out = "[";
  if (index < hosts_.size()) {
    const Host& host = hosts_[index];
    for (uint32_t d = host.first_device; d < host.first_device + host.device_count; ++d) {
      const Device& device = devices_[d];
      out += std::string(out.size() > 1 ? ", " : "") + "{\"limit\": " + std::to_string(device.limit) +
             ", \"used\": " + std::to_string(device.used) + ", \"running\": " + std::to_string(device.running) + "}";
    }
  }
  return out + "]";
}

}  // namespace pathways::controller
