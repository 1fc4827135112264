#include "csrc/values/device_table.h"

#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace pathways::values {

void DeviceTable::Add(std::unique_ptr<PJRT_Device> device) {
  all_.push_back(device.get());
  memories_.push_back(device->memories[0]);
  descriptions_.push_back(&device->description);
  devices_.push_back(std::move(device));
}

void DeviceTable::AddLogical(ClientState* client, int64_t count) {
  for (int64_t id = 0; id < count; ++id) Add(std::make_unique<PJRT_Device>(client, static_cast<int>(id)));
}

Status DeviceTable::AddBound(ClientState* client, std::span<const wire::HostDescription> hosts,
                             std::span<const int64_t> devices) {
  struct Place {
    const wire::HostDescription* host;
    size_t ordinal;
  };
  std::unordered_map<int64_t, Place> places;
  for (const wire::HostDescription& host : hosts) {
    for (size_t ordinal = 0; host.alive && ordinal < host.devices.size(); ++ordinal) {
      places[host.first_device + static_cast<int64_t>(ordinal)] = {&host, ordinal};
    }
  }
  std::set<int64_t> seen;
  for (const int64_t device : devices) {
    const auto place = places.find(device);
    if (place == places.end()) {
      return InvalidArgument("option devices names device " + std::to_string(device) + ", but the cluster has " +
                             std::to_string(places.size()) + " live devices and none of that number");
    }
    if (!seen.insert(device).second) {
      return InvalidArgument("option devices names device " + std::to_string(device) + " twice");
    }
    Add(std::make_unique<PJRT_Device>(client, static_cast<int>(all_.size()), static_cast<uint32_t>(device),
                                      *place->second.host, place->second.ordinal));
  }
  return OkStatus();
}

PJRT_Device* DeviceTable::Find(int64_t id) const {
  return id >= 0 && id < static_cast<int64_t>(devices_.size()) ? all_[static_cast<size_t>(id)] : nullptr;
}

Result<PJRT_Device*> DeviceTable::Of(PJRT_Device* device, PJRT_Memory* memory) const {
  for (PJRT_Device* each : all_) {
    if (each == device || (device == nullptr && memory != nullptr && each->memories[0] == memory)) return each;
  }
  return InvalidArgument(device == nullptr && memory == nullptr ? "expected a device or a memory, got neither"
                                                                : "the device or memory belongs to another client");
}

Status DeviceTable::CheckSame(const client::Session& session) const {
  std::unordered_map<uint32_t, std::string> islands;
  size_t count = 0;
  for (const wire::HostDescription& host : session.hosts()) {
    if (!host.alive) continue;
    count += host.devices.size();
    for (size_t i = 0; i < host.devices.size(); ++i) {
      islands[host.first_device + static_cast<uint32_t>(i)] = host.island;
    }
  }
  if (count != all_.size()) {
    return FailedPrecondition("this client keeps the " + std::to_string(all_.size()) +
                              " devices that it started with, and cluster '" + session.cluster() + "' has " +
                              std::to_string(count));
  }
  for (const PJRT_Device* device : all_) {
    const uint32_t number = device->devices()->front();
    const auto place = islands.find(number);
    if (place == islands.end()) {
      return FailedPrecondition("this client keeps device " + std::to_string(number) + ", and cluster '" +
                                session.cluster() + "' has none of that number");
    }
    for (const PJRT_Device* other : all_) {
      const auto its = islands.find(other->devices()->front());
      if (its == islands.end() || (device->island == other->island) == (place->second == its->second)) {
        continue;
      }
      return FailedPrecondition("this client keeps the islands that it started with, and cluster '" +
                                session.cluster() + "' divides the devices into others");
    }
  }
  return OkStatus();
}

}  // namespace pathways::values
