#include "csrc/sim/host_site.h"

#include <algorithm>

namespace pathways::sim {

void World::AddHost(uint32_t host, uint32_t first_device, uint32_t devices) {
  const size_t end = size_t{first_device} + devices;
  if (device_to_host.size() < end) {
    fleet.AddDevices(static_cast<uint32_t>(end - device_to_host.size()));
    device_to_host.resize(end, UINT32_MAX);
  }
  std::fill(device_to_host.begin() + first_device, device_to_host.begin() + static_cast<ptrdiff_t>(end), host);
}

void World::LoseHost(uint32_t host, const Status& error) {
  const auto first = std::find(device_to_host.begin(), device_to_host.end(), host);
  if (first == device_to_host.end()) return;  // known already
  const auto count = static_cast<uint32_t>(std::count(first, device_to_host.end(), host));
  const auto device = static_cast<uint32_t>(first - device_to_host.begin());
  std::fill(first, first + count, UINT32_MAX);
  fleet.LoseDevices(device, count, error);
  network.LoseHost(host, error);
}

}  // namespace pathways::sim
