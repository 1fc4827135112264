// ResourceManager: which devices there are, and which of them a virtual slice stands for (paper 4.1).
//
// A slice is a number of devices of one island and one platform; only CPU hosts that are asked for by name may be of
// several, as collectives reach all of them. The manager binds it to physical devices that carry
// the fewest slices; slices may share devices. Hosts join and leave while slices exist.
//
// A pure state machine: event in, decision out. Ownership: owned by controller::ClusterState. Threads: none inside;
// the owner serialises calls.
#ifndef PTPATHWAYS_CONTROLLER_RESOURCE_MANAGER_H_
#define PTPATHWAYS_CONTROLLER_RESOURCE_MANAGER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::controller {

class ResourceManager {
 public:
  struct Slice {
    uint64_t id = 0;  // the client's index in the top 16 bits, as in every id
    uint32_t client = 0;
    std::string island;
    std::vector<uint32_t> devices;  // cluster-wide, host by host, each host's by rising number
  };

  void AddHost(const wire::HostDescription& host);
  // Its devices are not granted any more. Slices that name them stay their owners' until released.
  void RemoveHost(uint32_t host);

  // Binds a slice. INVALID_ARGUMENT for a request that contradicts itself, RESOURCE_EXHAUSTED when no island has what
  // it asks for, saying what each island has.
  Result<Slice> Request(uint32_t client, const wire::RequestSlice& request);
  // Ids of slices already released are fine.
  void Release(std::span<const uint64_t> slices);
  void DropClient(uint32_t client);

  const std::map<uint64_t, Slice>& slices() const { return slices_; }
  // Slices bound to a device.
  uint32_t load(uint32_t device) const;
  // "island 'a': 2 hosts x 4 cpu devices, 15.00 GiB each, 3 slices bound (2 by client 1, 1 by client 4); island 'b':
  // ..."
  std::string Describe() const;
  // What Describe calls a client; until DropClient.
  void NameClient(uint32_t client, std::string name) { client_names_[client] = std::move(name); }
  // JSON arrays, for status.
  std::string SlicesJson() const;
  std::string LoadJson(uint32_t host) const;

 private:
  struct Host {
    bool alive = true;
    std::string name;
    std::string island;
    std::string platform;
    uint32_t first_device = 0;
    std::vector<int64_t> memory;  // limit of each device; 0: not limited
    std::vector<uint32_t> load;   // slices bound to each device
  };
  // Neighbouring devices of one host, and how much they carry.
  struct Window {
    uint64_t load = 0;
    uint32_t busiest = 0;
    std::vector<uint32_t> devices;
  };
  // What one island could give, and its price.
  struct Offer {
    std::string island;
    size_t hosts = 0;
    uint64_t load = 0;
    uint32_t busiest = 0;
    std::vector<uint32_t> devices;
    bool operator<(const Offer& other) const;
  };
  // An island's live devices of one platform that have the memory asked for: (host, local device numbers).
  using Eligible = std::vector<std::pair<uint32_t, std::vector<uint32_t>>>;
  using IslandKey = std::pair<std::string, std::string>;  // name, platform

  std::map<IslandKey, Eligible> FindEligible(const wire::RequestSlice& request) const;
  // The CPU hosts of all islands as one, in the order of hosts.
  static std::map<IslandKey, Eligible> JoinCpuIslands(const std::map<IslandKey, Eligible>& eligible);
  // The best that one of the islands can give; no devices when none can.
  Offer BestOffer(const std::map<IslandKey, Eligible>& eligible, const wire::RequestSlice& request) const;
  // The least loaded `count` neighbours among `candidates` of a host.
  Window BestWindow(uint32_t host, const std::vector<uint32_t>& candidates, size_t count) const;
  // False when the island cannot give it.
  bool MakeOffer(const Eligible& eligible, const wire::RequestSlice& request, Offer* offer) const;
  Status Explain(const wire::RequestSlice& request, const std::map<IslandKey, Eligible>& eligible) const;
  void ChangeLoad(const Slice& slice, int by);
  using Holders = std::map<uint32_t, uint32_t>;  // client -> slices bound
  // How many slices are bound, by whom, and how many devices are in none.
  std::string DescribeHolders(const std::string& island) const;
  Host* HostOfDevice(uint32_t device);

  std::map<uint32_t, Host> hosts_;              // by host index
  std::map<uint32_t, uint32_t> host_of_first_;  // first device -> host
  std::map<uint64_t, Slice> slices_;            // by id
  std::map<std::string, Holders> island_slices_;
  std::map<uint32_t, std::string> client_names_;
  uint64_t next_slice_ = 1;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_RESOURCE_MANAGER_H_
