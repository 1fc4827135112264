// Hosts: the cluster's hosts and devices as the controller describes them, and which hosts are lost.
//
// A pure state machine. Ownership: plain value. Threads: none inside; the session's lock guards it.
#ifndef PTPATHWAYS_CLIENT_HOSTS_H_
#define PTPATHWAYS_CLIENT_HOSTS_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

class Hosts {
 public:
  // Takes a new list. False: it is older than the known one and changes only identities. A lost host stays lost,
  // because the list may have been written before the loss was known.
  bool Update(std::vector<wire::HostDescription> now, const std::vector<wire::IdentityAt>& identities);
  // False: there is no such host.
  bool Lose(uint32_t host, const std::string& reason);

  // Hosts never move; new ones are appended.
  const std::vector<wire::HostDescription>& all() const { return hosts_; }
  const wire::HostDescription& operator[](uint32_t host) const { return hosts_[host]; }
  bool HasValues(uint32_t host) const { return !hosts_[host].data_endpoint.empty(); }  // else it is simulated
  uint32_t device_count() const { return static_cast<uint32_t>(host_of_device_.size()); }
  // The host of a device that exists, lost or not.
  uint32_t OfDevice(uint32_t device) const { return host_of_device_[device]; }
  // This client's identity at a host; null: none is known.
  const std::string* IdentityAt(uint32_t host) const;

  // INVALID_ARGUMENT: there is no such host; UNAVAILABLE: it is lost.
  Status CheckAlive(uint32_t host) const;
  // The host of a device, if both exist and the host is alive.
  Result<uint32_t> AliveOfDevice(uint32_t device) const;

 private:
  std::vector<wire::HostDescription> hosts_;
  std::vector<std::string> lost_reasons_;  // by host; empty while alive
  std::vector<uint32_t> host_of_device_;
  std::unordered_map<uint32_t, std::string> identities_;  // by host
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_HOSTS_H_
