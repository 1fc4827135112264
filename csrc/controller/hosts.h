// Hosts: which hosts there are and were, which devices each has, whether another one fits them, and the names by which
// they know who calls them.
//
// Ownership: owned by ClusterState, for its other parts to read. Threads: none inside; the owner serialises calls.
// Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_HOSTS_H_
#define PTPATHWAYS_CONTROLLER_HOSTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/outbox.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/identity.h"

namespace pathways::controller {

struct Host {
  wire::HostDescription description;
  Connection connection;
  std::string data_key;
  wire::Heartbeat load;
  std::string lost_reason;
  uint32_t island = 0;  // the scheduler's number

  bool alive() const { return description.alive != 0; }
  // For the log.
  std::string Describe() const;
  wire::Identity identity() const { return {"w/" + description.name, description.session}; }
};

class Hosts {
 public:
  // `data_secret`: the hosts' data keys are made of it.
  explicit Hosts(std::string data_secret) : data_secret_(std::move(data_secret)) {}

  // Whether a host may join those that are there. `one_client`: its plugin makes one client with its island's.
  Status Check(const wire::Hello& hello, bool one_client) const;
  // `island`: the scheduler's number of the island that IslandOf gives.
  Host& Add(wire::Hello hello, const Connection& from, uint64_t session, uint32_t island);
  // It stays, marked, with the reason.
  void Lose(uint32_t host, const std::string& reason);

  // The name of the island that a host is to be in.
  static const std::string& IslandOf(const wire::Hello& hello) {
    return hello.island.empty() ? hello.name : hello.island;
  }
  // Names and the scheduler's numbers.
  const std::map<std::string, uint32_t>& islands() const { return islands_; }

  // By number; lost hosts are among them.
  Host& operator[](size_t host) { return hosts_[host]; }
  const Host& operator[](size_t host) const { return hosts_[host]; }
  size_t size() const { return hosts_.size(); }
  auto begin() const { return hosts_.begin(); }
  auto end() const { return hosts_.end(); }
  uint32_t live_count() const { return live_count_; }
  // The host of that number; INVALID_ARGUMENT when there is none.
  Result<Host*> At(uint32_t host);
  Result<Host*> OfDevice(uint32_t device);
  size_t device_count() const { return device_to_host_.size(); }
  uint32_t host_of(uint32_t device) const { return device_to_host_[device]; }
  // One that is alive, by name, or null.
  const Host* Named(std::string_view name) const;
  std::vector<wire::HostDescription> Descriptions() const;
  // UNIMPLEMENTED unless one computation can have devices of both.
  static Status ComputeTogether(const Host& first, const Host& other);

  // What the caller must call itself at the hosts from this number on.
  std::vector<wire::IdentityAt> IdentitiesOf(const wire::Identity& caller, size_t first) const;
  // All members know the hosts so far, with their names there.
  void Announced() { announced_ = hosts_.size(); }
  size_t announced() const { return announced_; }

  // TOPOLOGY for one member after the other, written once for all who get no names.
  class Announcement {
   public:
    explicit Announcement(const Hosts& hosts) : hosts_(hosts), topology_{hosts.Descriptions()} {}
    std::string For(const wire::Identity& member);

   private:
    const Hosts& hosts_;
    wire::Topology topology_;
    std::string without_names_;
  };

 private:
  // ALREADY_EXISTS when another host has the name or the data endpoint.
  Status CheckUnique(const wire::Hello& hello) const;
  // FAILED_PRECONDITION unless the host's plugin is that of the others of its island.
  Status CheckPlugin(const wire::Hello& hello, bool one_client) const;
  // The same of its platform.
  Status CheckPlatform(const wire::Hello& hello) const;

  const std::string data_secret_;
  std::vector<Host> hosts_;
  std::vector<uint32_t> device_to_host_;
  std::map<std::string, uint32_t> islands_;
  uint32_t live_count_ = 0;
  size_t announced_ = 0;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_HOSTS_H_
