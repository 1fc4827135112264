#include "csrc/client/hosts.h"

#include <utility>

namespace pathways::client {

bool Hosts::Update(std::vector<wire::HostDescription> now, const std::vector<wire::IdentityAt>& identities) {
  for (const wire::IdentityAt& at : identities) identities_[at.host] = at.identity;
  if (now.size() < hosts_.size()) return false;
  for (size_t i = 0; i < lost_reasons_.size(); ++i) {
    if (!lost_reasons_[i].empty()) now[i].alive = wire::kHostLost;
  }
  hosts_ = std::move(now);
  lost_reasons_.resize(hosts_.size());
  host_of_device_.clear();
  for (const wire::HostDescription& host : hosts_) {
    host_of_device_.insert(host_of_device_.end(), host.devices.size(), host.host);
  }
  return true;
}

bool Hosts::Lose(uint32_t host, const std::string& reason) {
  if (host >= hosts_.size()) return false;
  hosts_[host].alive = wire::kHostLost;
  lost_reasons_[host] = reason;
  return true;
}

const std::string* Hosts::IdentityAt(uint32_t host) const {
  const auto it = identities_.find(host);
  return it == identities_.end() ? nullptr : &it->second;
}

Status Hosts::CheckAlive(uint32_t host) const {
  if (host >= hosts_.size()) {
    return InvalidArgument("expected a host below " + std::to_string(hosts_.size()) + ", got " + std::to_string(host));
  }
  return hosts_[host].alive ? OkStatus() : Unavailable(lost_reasons_[host]);
}

Result<uint32_t> Hosts::AliveOfDevice(uint32_t device) const {
  if (device >= host_of_device_.size()) {
    return InvalidArgument("expected a device below " + std::to_string(host_of_device_.size()) + ", got " +
                           std::to_string(device));
  }
  const uint32_t host = host_of_device_[device];
  PW_RETURN_IF_ERROR(CheckAlive(host));
  return host;
}

}  // namespace pathways::client
