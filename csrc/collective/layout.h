// Layout: who takes part in one meeting of a collective, and in which order; and how an all-reduce travels.
//
// Ownership: plain values. Threads: pure functions.
#ifndef PTPATHWAYS_COLLECTIVE_LAYOUT_H_
#define PTPATHWAYS_COLLECTIVE_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/gang.h"
#include "csrc/hlo/collective.h"

namespace pathways::collective {

// The members of a group on one host, as positions in the group, ascending. The first one's device stands for the host
// towards other hosts.
struct HostMembers {
  uint32_t host = 0;
  std::vector<uint32_t> positions;
};

struct Layout {
  uint32_t group = 0;              // index in the operation's groups
  std::vector<uint32_t> members;   // shard of each position
  std::vector<Place> places;       // of each position
  std::vector<HostMembers> hosts;  // ascending
  size_t own = 0;                  // index in `hosts`
  uint32_t position = 0;           // of the shard that asked

  const HostMembers& local() const { return hosts[own]; }
  uint32_t DeviceFor(size_t host) const { return places[hosts[host].positions[0]].device; }
};

// The meeting of `shard`, which runs on `host`. No groups (and kPermute): one of all shards, in their order.
// INVALID_ARGUMENT: the shard is in no group, or a group names a shard that the gang does not have.
Result<Layout> FindLayout(const hlo::CollectiveOp& op, const std::vector<Place>& shards, uint32_t shard, uint32_t host);

enum class AllReduceWay : uint8_t {
  kOneHop,   // everybody sends its whole part to everybody, and reduces all
  kTwoHops,  // each host reduces its share of the array and then sends it to all: 2 (n-1)/n of the bytes
};
AllReduceWay ChooseAllReduce(uint64_t bytes, size_t hosts);

// The share of host number `index` of `hosts` in [0, bytes): begin and end, multiples of 64 but for the last end.
struct Share {
  uint64_t begin = 0;
  uint64_t end = 0;
};
Share ShareOf(uint64_t bytes, size_t index, size_t hosts);

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_LAYOUT_H_
