#include "csrc/collective/layout.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace pathways::collective {
namespace {

constexpr uint64_t kShareAlignment = 64;
// Up to so many bytes in all leave a host in one hop; beyond, the bytes cost more than the second hop.
constexpr uint64_t kOneHopBytes = 64 << 10;

}  // namespace

Result<Layout> FindLayout(const hlo::CollectiveOp& op, const std::vector<Place>& shards, uint32_t shard,
                          uint32_t host) {
  Layout layout;
  bool found = false;
  if (op.kind == hlo::CollectiveKind::kPermute || op.groups.empty()) {
    layout.members.resize(shards.size());
    std::iota(layout.members.begin(), layout.members.end(), 0);
    found = shard < shards.size();
    layout.position = shard;
  }
  for (uint32_t group = 0; !found && group < op.groups.size(); ++group) {
    const auto& members = op.groups[group];
    const auto at = std::find(members.begin(), members.end(), shard);
    if (at == members.end()) continue;
    layout.group = group;
    layout.members = members;
    layout.position = static_cast<uint32_t>(at - members.begin());
    found = true;
  }
  if (!found) {
    return InvalidArgument("collective " + std::to_string(op.number) + " must name shard " + std::to_string(shard) +
                           " in one of its groups, and does not");
  }
  for (uint32_t position = 0; position < layout.members.size(); ++position) {
    const uint32_t member = layout.members[position];
    if (member >= shards.size()) {
      return InvalidArgument("collective " + std::to_string(op.number) + " names shard " + std::to_string(member) +
                             ", but the computation has " + std::to_string(shards.size()));
    }
    const Place place = shards[member];
    layout.places.push_back(place);
    auto at = std::lower_bound(layout.hosts.begin(), layout.hosts.end(), place.host,
                               [](const HostMembers& a, uint32_t b) { return a.host < b; });
    if (at == layout.hosts.end() || at->host != place.host) at = layout.hosts.insert(at, {place.host, {}});
    at->positions.push_back(position);
  }
  for (size_t i = 0; i < layout.hosts.size(); ++i) {
    if (layout.hosts[i].host == host) layout.own = i;
  }
  if (layout.hosts[layout.own].host != host) {
    return InvalidArgument("shard " + std::to_string(shard) + " must run on this host, number " + std::to_string(host) +
                           ", and does not");
  }
  return layout;
}

AllReduceWay ChooseAllReduce(uint64_t bytes, size_t hosts) {
  return bytes * (hosts - 1) <= kOneHopBytes ? AllReduceWay::kOneHop : AllReduceWay::kTwoHops;
}

Share ShareOf(uint64_t bytes, size_t index, size_t hosts) {
  const uint64_t units = bytes / kShareAlignment;
  const auto cut = [&](size_t i) { return i == hosts ? bytes : units * i / hosts * kShareAlignment; };
  return {cut(index), cut(index + 1)};
}

}  // namespace pathways::collective
