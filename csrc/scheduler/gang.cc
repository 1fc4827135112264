#include "csrc/scheduler/gang.h"

#include <algorithm>

namespace pathways::scheduler {

void GangShape::Add(uint32_t host, uint32_t island, uint32_t device) {
  auto part = std::lower_bound(parts.begin(), parts.end(), host,
                               [](const GangPart& candidate, uint32_t wanted) { return candidate.host < wanted; });
  if (part == parts.end() || part->host != host) part = parts.insert(part, GangPart{host, island, {}});
  if (std::find(part->devices.begin(), part->devices.end(), device) != part->devices.end()) return;
  part->devices.push_back(device);
  ++device_count;
  if (std::find(islands.begin(), islands.end(), island) == islands.end()) islands.push_back(island);
}

}  // namespace pathways::scheduler
