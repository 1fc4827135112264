#include "csrc/worker/cluster_view.h"

#include <algorithm>

namespace pathways::worker {

const wire::HostDescription* ClusterView::Lose(uint32_t host) {
  if (host >= hosts_.size()) return nullptr;
  hosts_[host].alive = wire::kHostLost;
  return &hosts_[host];
}

std::vector<std::string> ClusterView::Names() const {
  std::vector<std::string> names;
  for (const wire::HostDescription& host : hosts_) names.push_back(host.name);
  return names;
}

const wire::HostDescription* ClusterView::OfDevice(uint32_t device) const {
  for (const wire::HostDescription& host : hosts_) {
    if (device >= host.first_device && device - host.first_device < host.devices.size()) return &host;
  }
  return nullptr;
}

Result<int64_t> ClusterView::PluginId(uint32_t device) const {
  const wire::HostDescription* const host = OfDevice(device);
  if (host == nullptr) return InvalidArgument("expected a device of the cluster, got " + std::to_string(device));
  return host->devices[device - host->first_device].plugin_id;
}

ClusterView::Places ClusterView::PlacesOf(const std::vector<uint32_t>& devices, uint32_t here) const {
  const auto is_here = [&](uint32_t device) {
    const wire::HostDescription* const host = OfDevice(device);
    return host != nullptr && host->host == here;
  };
  if (std::all_of(devices.begin(), devices.end(), is_here)) return nullptr;
  auto places = std::make_shared<std::vector<collective::Place>>();
  for (const uint32_t device : devices) {
    if (const wire::HostDescription* const host = OfDevice(device)) {
      places->push_back({host->host, device - host->first_device});
    }
  }
  return places;
}

}  // namespace pathways::worker
