#include "csrc/controller/memory_books.h"

#include <algorithm>
#include <iterator>

#include "csrc/wire/bodies.h"

namespace pathways::controller {
namespace {

// Sizes that a client claims may add up to more than a number holds; beyond this a sum is as good as endless, and a few
// of them can still be added.
constexpr int64_t kEndless = int64_t{1} << 59;

void Add(int64_t& sum, int64_t bytes) { sum = std::min(sum + std::min(bytes, kEndless), kEndless); }

}  // namespace

void MemoryBooks::AddHost(uint32_t index, uint32_t first_device, std::span<const int64_t> limits,
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

void MemoryBooks::RemoveHost(uint32_t index) {
  if (!limited(index)) return;
  Host& host = hosts_[index];
  host.buffers.clear();
  host.limited = false;
  host.staged = 0;
  for (uint32_t d = host.first_device; d < host.first_device + host.device_count; ++d) {
    devices_[d].used = devices_[d].running = devices_[d].leaving = 0;
  }
  for (auto it = running_.begin(); it != running_.end();) {
    std::erase_if(it->second, [&](const auto& scratch) { return devices_[scratch.device].host == index; });
    it = it->second.empty() ? running_.erase(it) : std::next(it);
  }
  Freed();
}

// --- a request that is looked at

void MemoryBooks::Touch(uint32_t device) {
  if (devices_[device].touched) return;
  devices_[device].touched = true;
  touched_.push_back(device);
}

bool MemoryBooks::EvaluateArgument(Host& host, uint64_t argument) {
  auto it = host.buffers.find(argument);
  if (it == host.buffers.end() || it->second.seen == clock_) return false;
  Entry& entry = it->second;
  entry.seen = clock_;
  entry.named = clock_;
  entry.ForDevices([&](uint32_t device) {
    Touch(device);
    Add(devices_[device].arguments, entry.bytes);
    if (entry.place == Place::kStaged) Add(devices_[device].restored, entry.bytes);
  });
  return entry.place == Place::kLeaving;
}

bool MemoryBooks::Evaluate(const MemoryRequest& request, bool thorough) {
  for (const uint32_t d : touched_) {
    Device& device = devices_[d];
    device.touched = false;
    device.arguments = device.restored = device.made = device.donated = device.scratch = 0;
  }
  touched_.clear();
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
      if (it == host.buffers.end() || it->second.seen != clock_) continue;
      it->second.seen = 0;  // counted once
      it->second.ForDevices([&](uint32_t device) { Add(devices_[device].donated, it->second.bytes); });
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

bool MemoryBooks::Fits(uint32_t client) const {
  for (const uint32_t d : touched_) {
    const Device& device = devices_[d];
    const int64_t asked = device.asked();
    if (device.limit == 0 || asked <= 0) continue;
    if (device.used + device.running + asked > device.limit) return false;
    if (device.closed_for != 0 && device.closed_for != client) return false;
  }
  return true;
}

bool MemoryBooks::NeverFits() const {
  return std::any_of(touched_.begin(), touched_.end(), [this](uint32_t d) {
    const Device& device = devices_[d];
    return device.limit != 0 && device.arguments + device.asked() - device.restored > device.limit;
  });
}

void MemoryBooks::AgeResidents() {
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

// --- changes

void MemoryBooks::Return(Host& host, uint64_t argument, MemoryOrder& order) {
  auto it = host.buffers.find(argument);
  if (it == host.buffers.end() || it->second.place != Place::kStaged) return;
  Entry& entry = it->second;
  entry.place = Place::kDevice;
  host.staged -= entry.total();
  entry.ForDevices([&](uint32_t device) { devices_[device].used += entry.bytes; });
  order.buffers.push_back(argument);
}

void MemoryBooks::EnterMade(const MemoryRequest::Made& made, const std::vector<uint32_t>& devices) {
  Entry* entry = nullptr;
  uint32_t of_host = UINT32_MAX;
  for (uint32_t i = made.first_device; i < made.first_device + made.device_count; ++i) {
    const uint32_t device = devices[i];
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

void MemoryBooks::Enter(const MemoryRequest& request, std::vector<MemoryOrder>* orders) {
  for (const uint32_t index : request.hosts) {
    if (!limited(index)) continue;
    Host& host = hosts_[index];
    MemoryOrder order{index, true, {}};
    for (const uint64_t argument : request.arguments) Return(host, argument, order);
    if (request.residents && host.staged > 0) {
      for (const uint64_t argument : request.residents->buffers) Return(host, argument, order);
    }
    if (!order.buffers.empty()) orders->push_back(std::move(order));
  }
  for (const MemoryRequest::Made& made : request.made) EnterMade(made, request.devices);
  for (const MemoryRequest::Scratch& scratch : request.scratch) {
    if (!limited(devices_[scratch.device].host)) continue;
    devices_[scratch.device].running += scratch.bytes;
    running_[request.id].push_back(scratch);
  }
}

void MemoryBooks::GiveUp(const MemoryRequest& request) {
  if (request.donated.empty()) return;
  for (const uint32_t host : request.hosts) Free(host, request.donated);
}

void MemoryBooks::Pin(const MemoryRequest& request, int by) {
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

void MemoryBooks::Forget(Host& host, const Entry& entry) {
  if (entry.place != Place::kDevice) host.staged -= entry.total();
  if (entry.place == Place::kStaged) return;
  entry.ForDevices([&](uint32_t device) {
    devices_[device].used -= entry.bytes;
    if (entry.place == Place::kLeaving) devices_[device].leaving -= entry.bytes;
  });
}

void MemoryBooks::Erase(Host& host, uint64_t id) {
  auto it = host.buffers.find(id);
  if (it == host.buffers.end()) return;
  Forget(host, it->second);
  host.buffers.erase(it);
  Freed();
}

void MemoryBooks::Free(uint32_t host, std::span<const uint64_t> buffers) {
  if (!limited(host)) return;
  for (const uint64_t id : buffers) Erase(hosts_[host], id);
}

void MemoryBooks::FreeClient(uint32_t client) {
  for (Host& host : hosts_) {
    std::erase_if(host.buffers, [&](const auto& item) {
      if (wire::ClientOf(item.first) != client) return false;
      Forget(host, item.second);
      return true;
    });
  }
  Freed();
}

void MemoryBooks::EndRun(uint64_t run) {
  auto node = running_.extract(run);
  if (node.empty()) return;
  for (const MemoryRequest::Scratch& scratch : node.mapped()) devices_[scratch.device].running -= scratch.bytes;
  Freed();
}

void MemoryBooks::EndPart(uint64_t run, uint32_t host) {
  if (running_.empty()) return;
  auto it = running_.find(run);
  if (it == running_.end()) return;
  std::erase_if(it->second, [&](const MemoryRequest::Scratch& scratch) {
    if (devices_[scratch.device].host != host) return false;
    devices_[scratch.device].running -= scratch.bytes;
    return true;
  });
  if (it->second.empty()) running_.erase(it);
  Freed();
}

void MemoryBooks::Leave(const MemoryOrder& order) {
  Host& host = hosts_[order.host];
  for (const uint64_t id : order.buffers) {
    Entry& entry = host.buffers.at(id);
    entry.place = Place::kLeaving;
    host.staged += entry.total();
    entry.ForDevices([&](uint32_t device) { devices_[device].leaving += entry.bytes; });
  }
}

void MemoryBooks::Spilled(uint32_t index, std::span<const uint64_t> buffers) {
  if (!limited(index)) return;
  Host& host = hosts_[index];
  for (const uint64_t id : buffers) {
    auto it = host.buffers.find(id);
    if (it == host.buffers.end() || it->second.place != Place::kLeaving) continue;
    Entry& entry = it->second;
    entry.place = Place::kStaged;
    entry.ForDevices([&](uint32_t device) {
      devices_[device].used -= entry.bytes;
      devices_[device].leaving -= entry.bytes;
    });
  }
  Freed();
}

void MemoryBooks::OpenFrom(uint32_t client) {
  for (Device& device : devices_) {
    if (device.closed_for == client) device.closed_for = 0;
  }
}

}  // namespace pathways::controller
