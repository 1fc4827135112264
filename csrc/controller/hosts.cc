#include "csrc/controller/hosts.h"

#include <algorithm>

namespace pathways::controller {

std::string Host::Describe() const {
  return "host " + Quoted(description.name) + " (host " + std::to_string(description.host) + ", pid " +
         std::to_string(description.pid) + ")";
}

Status Hosts::Check(const wire::Hello& hello, bool one_client) const {
  if (hello.devices.empty()) return InvalidArgument("expected a host with at least one device, got none");
  PW_RETURN_IF_ERROR(CheckUnique(hello));
  PW_RETURN_IF_ERROR(CheckPlugin(hello, one_client));
  return CheckPlatform(hello);
}

Status Hosts::CheckUnique(const wire::Hello& hello) const {
  for (const Host& host : hosts_) {
    if (!host.alive()) continue;
    if (host.description.name == hello.name) {
      return Status(Code::kAlreadyExists,
                    "a host named " + Quoted(hello.name) + " is already a member; give each worker its own --name");
    }
    // Whoever connects there would end the other one's connections when it lets go of this one's.
    if (!hello.data_endpoint.empty() && host.description.data_endpoint == hello.data_endpoint) {
      return Status(Code::kAlreadyExists, "expected " + Quoted(hello.name) +
                                              " to listen at a data endpoint of its own, got " +
                                              Quoted(hello.data_endpoint) + ", where " + host.Describe() +
                                              " listens; give each worker its own --data-endpoint, or --advertise");
    }
  }
  return OkStatus();
}

Status Hosts::CheckPlugin(const wire::Hello& hello, bool one_client) const {
  for (const Host& host : hosts_) {
    const wire::HostDescription& other = host.description;
    if (!other.alive || hello.island.empty() || other.island != hello.island || other.platform != hello.platform) {
      continue;
    }
    for (const wire::DeviceDescription& device : hello.devices) {
      const bool twice = std::any_of(other.devices.begin(), other.devices.end(),
                                     [&](const auto& known) { return known.plugin_id == device.plugin_id; });
      if (!one_client || !twice) continue;
      return FailedPrecondition("expected a number of its own for every device of island " + Quoted(hello.island) +
                                ", got " + std::to_string(device.plugin_id) + " on hosts " + Quoted(other.name) +
                                " and " + Quoted(hello.name) +
                                ": its plugin does not make one client of several hosts; start its workers without "
                                "--island-hosts");
    }
    if (other.platform_version == hello.platform_version) continue;
    return FailedPrecondition("expected the " + hello.platform + " plugin " + Quoted(other.platform_version) +
                              " as on host " + Quoted(other.name) + " of island " + Quoted(hello.island) + ", got " +
                              Quoted(hello.platform_version) + " on host " + Quoted(hello.name) +
                              "; install the same plugin on every host of an island");
  }
  return OkStatus();
}

Status Hosts::CheckPlatform(const wire::Hello& hello) const {
  if (hello.island.empty()) return OkStatus();
  for (const Host& host : hosts_) {
    const wire::HostDescription& member = host.description;
    if (!member.alive || member.island != hello.island || member.platform == hello.platform) continue;
    return FailedPrecondition("hosts of one island compute together and must have the same platform: " +
                              Quoted(member.name) + " has " + member.platform + ", " + Quoted(hello.name) + " has " +
                              hello.platform + "; give them islands of their own instead of " + Quoted(hello.island));
  }
  return OkStatus();
}

Host& Hosts::Add(wire::Hello hello, const Connection& from, uint64_t session, uint32_t island) {
  Host host;
  host.connection = from;
  host.island = island;
  wire::HostDescription& description = host.description;
  description.host = static_cast<uint32_t>(hosts_.size());
  description.name = hello.name;
  description.machine = hello.machine;
  description.data_endpoint = hello.data_endpoint;
  description.platform = hello.platform;
  description.platform_version = hello.platform_version;
  description.island = IslandOf(hello);
  description.pid = hello.pid;
  description.first_device = static_cast<uint32_t>(device_to_host_.size());
  description.devices = std::move(hello.devices);
  description.staging_limit_bytes = hello.staging_limit_bytes;
  description.session = session;
  host.data_key = wire::ListenerKey(data_secret_, host.identity());
  device_to_host_.insert(device_to_host_.end(), description.devices.size(), description.host);
  islands_.try_emplace(description.island, island);
  ++live_count_;
  return hosts_.emplace_back(std::move(host));
}

void Hosts::Lose(uint32_t index, const std::string& reason) {
  Host& host = hosts_[index];
  host.description.alive = 0;
  --live_count_;
  host.lost_reason = host.Describe() + " is lost: " + reason;
}

Result<Host*> Hosts::At(uint32_t host) {
  if (host >= hosts_.size()) return InvalidArgument("expected a host, got number " + std::to_string(host));
  return &hosts_[host];
}

Result<Host*> Hosts::OfDevice(uint32_t device) {
  if (device >= device_to_host_.size()) {
    return InvalidArgument("expected a device below " + std::to_string(device_to_host_.size()) + ", got " +
                           std::to_string(device));
  }
  return &hosts_[device_to_host_[device]];
}

const Host* Hosts::Named(std::string_view name) const {
  auto found = std::find_if(hosts_.begin(), hosts_.end(),
                            [&](const Host& host) { return host.alive() && host.description.name == name; });
  return found == hosts_.end() ? nullptr : &*found;
}

std::vector<wire::HostDescription> Hosts::Descriptions() const {
  std::vector<wire::HostDescription> descriptions;
  descriptions.reserve(hosts_.size());
  for (const Host& host : hosts_) descriptions.push_back(host.description);
  return descriptions;
}

Status Hosts::ComputeTogether(const Host& first, const Host& other) {
  if (first.description.collectives_reach() == other.description.collectives_reach()) return OkStatus();
  return Unimplemented("one computation over the devices of hosts " + Quoted(first.description.name) + " (" +
                       first.description.platform + ") and " + Quoted(other.description.name) + " (" +
                       other.description.platform + ") needs them in one island, but they are in islands " +
                       Quoted(first.description.island) + " and " + Quoted(other.description.island) +
                       "; make it a program with a function per island");
}

std::vector<wire::IdentityAt> Hosts::IdentitiesOf(const wire::Identity& caller, size_t first) const {
  std::vector<wire::IdentityAt> identities;
  for (size_t i = first; i < hosts_.size(); ++i) {
    const wire::HostDescription& host = hosts_[i].description;
    if (!host.alive || host.data_endpoint.empty() || host.session == caller.session) continue;
    identities.push_back({host.host, wire::IdentityText(hosts_[i].data_key, caller)});
  }
  return identities;
}

std::string Hosts::Announcement::For(const wire::Identity& member) {
  topology_.identities = hosts_.IdentitiesOf(member, hosts_.announced_);
  if (!topology_.identities.empty()) return wire::Encode(topology_);
  if (without_names_.empty()) without_names_ = wire::Encode(topology_);
  return without_names_;
}

}  // namespace pathways::controller
