#include "csrc/scheduler/fair_shares.h"

#include <algorithm>

namespace pathways::scheduler {
namespace {

// How far behind the others a client that never stops may fall before the rest of its claim lapses, in queue bounds.
constexpr double kSlackBounds = 4;

}  // namespace

uint32_t FairShares::AddIsland() {
  islands_.emplace_back();
  return static_cast<uint32_t>(islands_.size() - 1);
}

void FairShares::Ask(const Gang& gang, double weight) {
  for (const uint32_t index : gang.shape->islands) {
    Island& island = islands_[index];
    Standing& standing = island.standings[gang.client];
    // One that never stops may be behind a little, because the estimates it was charged by are corrected afterwards.
    const double slack =
        standing.in_flight == 0 ? 0 : kSlackBounds * queue_us_ * gang.shape->device_count / std::max(weight, 1e-9);
    standing.received = std::max(standing.received, island.virtual_time - slack);
  }
}

double FairShares::KeyOf(const Gang& gang) const {
  double key = -1e300;
  for (const uint32_t index : gang.shape->islands) {
    const Island& island = islands_[index];
    auto standing = island.standings.find(gang.client);
    const double received = standing == island.standings.end() ? 0 : standing->second.received;
    key = std::max(key, received - island.virtual_time);
  }
  return key;
}

void FairShares::Start(const Gang& gang) {
  for (const uint32_t index : gang.shape->islands) {
    Island& island = islands_[index];
    Standing& standing = island.standings[gang.client];
    ++island.granted;
    ++island.in_flight;
    ++standing.in_flight;
    island.virtual_time = std::max(island.virtual_time, standing.received);
  }
}

void FairShares::Charge(uint32_t client, const GangPart& part, double device_us, double weight) {
  islands_[part.island].standings[client].received += device_us * static_cast<double>(part.devices.size()) / weight;
}

void FairShares::End(const Gang& gang) {
  for (const uint32_t index : gang.shape->islands) {
    --islands_[index].in_flight;
    --islands_[index].standings[gang.client].in_flight;
  }
}

void FairShares::Drop(uint32_t client) {
  for (Island& island : islands_) island.standings.erase(client);
}

}  // namespace pathways::scheduler
