#include "csrc/scheduler/gang_scheduler.h"

#include <algorithm>

namespace pathways::scheduler {
namespace {

// Share of a new measurement in the moving average.
constexpr double kNewShare = 0.25;
// A run of which nothing is known is taken for this part of the queue's bound: a few may go until the first is
// measured.
constexpr double kUnknownShare = 0.25;

}  // namespace

void GangScheduler::AddClient(uint32_t client, double weight, int32_t priority) {
  ClientAccount& account = accounts_[client];
  account.weight = weight;
  account.priority = priority;
}

double GangScheduler::estimate_us(uint64_t work) const {
  auto it = estimates_.find(work);
  return it == estimates_.end() ? 0 : it->second;
}

double GangScheduler::EstimateOf(uint64_t work) const {
  auto it = estimates_.find(work);
  return it == estimates_.end() ? kUnknownShare * static_cast<double>(options_.queue_us) : it->second;
}

void GangScheduler::Reserve(const GangShape& shape) {
  for (const GangPart& part : shape.parts) {
    for (const uint32_t device : part.devices) {
      if (device >= devices_.size()) devices_.resize(device + 1);
      devices_[device].island = part.island;
    }
  }
}

Result<bool> GangScheduler::Ask(const Gang& gang, uint64_t now_ms) {
  if (auto it = asking_.find(gang.client); it != asking_.end()) {
    if (it->second.gang.run == gang.run) return false;
    return FailedPrecondition("expected one asking gang per client, got a second");
  }
  if (flights_.contains(gang.run)) {
    return Status(Code::kAlreadyExists, "expected a new run id, got " + std::to_string(gang.run) +
                                            ", which is in flight; a client mints every id once");
  }
  Reserve(*gang.shape);
  shares_.Ask(gang, accounts_[gang.client].weight);
  if (!options_.arbitrate || (asking_.empty() && !FirstObstacle(*gang.shape, std::nullopt))) {
    Start(gang, now_ms);
    return true;
  }
  asking_.emplace(gang.client, Asking{gang, now_ms, std::nullopt});
  changed_ = true;
  return false;
}

std::optional<uint32_t> GangScheduler::FirstObstacle(const GangShape& shape, std::optional<uint32_t> look_first) const {
  const auto is_obstacle = [this](uint32_t device) {
    const DeviceQueue& queue = devices_[device];
    return !IsOpen(queue) || (search_ != 0 && queue.closed_in == search_);
  };
  if (look_first && is_obstacle(*look_first)) return look_first;
  for (const GangPart& part : shape.parts) {
    for (const uint32_t device : part.devices) {
      if (is_obstacle(device)) return device;
    }
  }
  return std::nullopt;
}

bool GangScheduler::GoesBefore(const Asking& a, const Asking& b) const {
  if (options_.policy == Policy::kPriority) {
    const int32_t first = accounts_.at(a.gang.client).priority;
    const int32_t second = accounts_.at(b.gang.client).priority;
    if (first != second) return first > second;
  }
  if (options_.policy == Policy::kFair) {
    const double first = shares_.KeyOf(a.gang), second = shares_.KeyOf(b.gang);
    if (first != second) return first < second;
  }
  return a.gang.arrival < b.gang.arrival;
}

std::optional<GangScheduler::Grant> GangScheduler::TakeGrant(uint64_t now_ms) {
  if (!changed_ || asking_.empty()) return std::nullopt;
  std::vector<Asking*> order;
  order.reserve(asking_.size());
  for (auto& [client, asking] : asking_) order.push_back(&asking);
  std::sort(order.begin(), order.end(), [this](const Asking* a, const Asking* b) { return GoesBefore(*a, *b); });
  ++search_;
  for (Asking* asking : order) {
    const std::optional<uint32_t> obstacle = FirstObstacle(*asking->gang.shape, asking->blocked_on);
    if (!obstacle) {
      const Gang gang = asking->gang;
      accounts_[gang.client].waited_seconds += static_cast<double>(now_ms - asking->since_ms) * 1e-3;
      StopWaiting(*asking);
      asking_.erase(gang.client);
      Start(gang, now_ms);
      return Grant{gang.client, gang.run};
    }
    StopWaiting(*asking);
    // One that only waits behind another is looked at again when that one goes.
    if (!IsOpen(devices_[*obstacle])) {
      asking->blocked_on = obstacle;
      ++devices_[*obstacle].waiters;
    }
    if (asking == order.back()) break;
    for (const GangPart& part : asking->gang.shape->parts) {
      for (const uint32_t device : part.devices) devices_[device].closed_in = search_;
    }
  }
  changed_ = false;
  return std::nullopt;
}

void GangScheduler::StopWaiting(Asking& asking) {
  if (asking.blocked_on) --devices_[*asking.blocked_on].waiters;
  asking.blocked_on.reset();
}

void GangScheduler::Start(const Gang& gang, uint64_t now_ms) {
  Flight flight;
  flight.gang = gang;
  flight.estimate_us = EstimateOf(gang.work);
  flight.parts_left = static_cast<uint32_t>(gang.shape->parts.size());
  if (flight.parts_left > 1) flight.ended.resize(flight.parts_left);
  ClientAccount& account = accounts_[gang.client];
  ++account.submitted;
  flight.sequence = ++sequence_;
  flight.granted_ms = now_ms;
  shares_.Start(gang);
  for (const GangPart& part : gang.shape->parts) {
    shares_.Charge(gang.client, part, flight.estimate_us, account.weight);
    for (const uint32_t device : part.devices) {
      ++devices_[device].gangs;
      devices_[device].queued_us += flight.estimate_us;
    }
  }
  flights_.emplace(gang.run, std::move(flight));
}

void GangScheduler::EndPart(Flight& flight, size_t index, double device_us, uint64_t now_ms) {
  const GangPart& part = flight.gang.shape->parts[index];
  if (!flight.ended.empty()) flight.ended[index] = true;
  --flight.parts_left;
  flight.longest_us = std::max(flight.longest_us, device_us);
  ClientAccount& account = accounts_[flight.gang.client];
  account.device_seconds += device_us * static_cast<double>(part.devices.size()) * 1e-6;
  shares_.Charge(flight.gang.client, part, device_us - flight.estimate_us, account.weight);
  for (const uint32_t device : part.devices) {
    DeviceQueue& queue = devices_[device];
    --queue.gangs;
    queue.ended_ms = now_ms;
    queue.queued_us = queue.gangs == 0 ? 0 : queue.queued_us - flight.estimate_us;
    if (queue.waiters > 0 && IsOpen(queue)) changed_ = true;
  }
}

void GangScheduler::EndGang(const Flight& flight) {
  ++accounts_[flight.gang.client].finished;
  shares_.End(flight.gang);
  if (flight.failed) return;
  auto [it, fresh] = estimates_.try_emplace(flight.gang.work, flight.longest_us);
  if (!fresh) it->second += kNewShare * (flight.longest_us - it->second);
}

PartResult GangScheduler::PartDone(uint64_t run, uint32_t host, uint64_t device_us, bool ok, uint64_t now_ms) {
  auto it = flights_.find(run);
  if (it == flights_.end()) return PartResult::kIgnored;
  Flight& flight = it->second;
  const std::vector<GangPart>& parts = flight.gang.shape->parts;
  const auto part = std::lower_bound(parts.begin(), parts.end(), host, [](const GangPart& candidate, uint32_t wanted) {
    return candidate.host < wanted;
  });
  if (part == parts.end() || part->host != host) return PartResult::kIgnored;
  const auto index = static_cast<size_t>(part - parts.begin());
  if (!flight.ended.empty() && flight.ended[index]) return PartResult::kIgnored;
  const bool first_failure = !ok && !flight.failed;
  flight.failed = flight.failed || !ok;
  EndPart(flight, index, static_cast<double>(device_us), now_ms);
  const bool failed = flight.failed;
  const bool last = flight.parts_left == 0;
  if (last) {
    EndGang(flight);
    flights_.erase(it);
  }
  if (first_failure) return PartResult::kFailed;
  return last && !failed ? PartResult::kEnded : PartResult::kUnfinished;
}

std::vector<uint64_t> GangScheduler::HostLost(uint32_t host, uint64_t now_ms) {
  const auto needs = [host](const GangShape& shape) {
    return std::any_of(shape.parts.begin(), shape.parts.end(),
                       [host](const GangPart& part) { return part.host == host; });
  };
  for (auto it = asking_.begin(); it != asking_.end();) {
    if (needs(*it->second.gang.shape)) {
      StopWaiting(it->second);
      it = asking_.erase(it);
      changed_ = true;
    } else {
      ++it;
    }
  }
  std::vector<uint64_t> affected;
  for (const auto& [run, flight] : flights_) {
    if (needs(*flight.gang.shape)) affected.push_back(run);
  }
  std::sort(affected.begin(), affected.end());
  std::erase_if(affected, [&](uint64_t run) { return PartDone(run, host, 0, false, now_ms) != PartResult::kFailed; });
  return affected;
}

void GangScheduler::DropClient(uint32_t client, uint64_t now_ms) {
  if (auto it = asking_.find(client); it != asking_.end()) {
    StopWaiting(it->second);
    asking_.erase(it);
    changed_ = true;
  }
  for (auto it = flights_.begin(); it != flights_.end();) {
    Flight& flight = it->second;
    if (flight.gang.client != client) {
      ++it;
      continue;
    }
    for (size_t part = 0; part < flight.gang.shape->parts.size(); ++part) {
      if (flight.ended.empty() || !flight.ended[part]) EndPart(flight, part, 0, now_ms);
    }
    flight.failed = true;  // teaches nothing about how long its work takes
    EndGang(flight);
    it = flights_.erase(it);
  }
  accounts_.erase(client);
  shares_.Drop(client);
}

std::map<uint32_t, Unfinished> GangScheduler::UnfinishedByHost(uint64_t now_ms, uint64_t at_least_ms) const {
  struct First {
    const Flight* flight = nullptr;
    uint32_t host = 0;
  };
  std::vector<First> first(devices_.size());  // by device
  for (const auto& [run, flight] : flights_) {
    if (now_ms < flight.granted_ms + at_least_ms) continue;
    const std::vector<GangPart>& parts = flight.gang.shape->parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!flight.ended.empty() && flight.ended[i]) continue;
      for (const uint32_t device : parts[i].devices) {
        First& known = first[device];
        if (known.flight == nullptr || flight.sequence < known.flight->sequence) known = {&flight, parts[i].host};
      }
    }
  }
  std::map<uint32_t, Unfinished> found;
  for (uint32_t device = 0; device < first.size(); ++device) {
    if (first[device].flight == nullptr) continue;
    const Flight& flight = *first[device].flight;
    const DeviceQueue& queue = devices_[device];
    const uint64_t still_ms = now_ms - std::min(now_ms, std::max(flight.granted_ms, queue.ended_ms));
    auto [host, fresh] = found.try_emplace(first[device].host);
    if (!fresh && still_ms <= host->second.still_ms) continue;
    host->second = {device,
                    queue.gangs,
                    still_ms,
                    flight.gang.run,
                    flight.gang.client,
                    flight.gang.work,
                    now_ms - std::min(now_ms, flight.granted_ms)};
  }
  return found;
}

size_t GangScheduler::asking(uint32_t island) const {
  return static_cast<size_t>(std::count_if(asking_.begin(), asking_.end(), [island](const auto& entry) {
    const std::vector<uint32_t>& islands = entry.second.gang.shape->islands;
    return std::find(islands.begin(), islands.end(), island) != islands.end();
  }));
}

double GangScheduler::queued_us(uint32_t island) const {
  double most = 0;
  for (const DeviceQueue& queue : devices_) {
    if (queue.island == island) most = std::max(most, queue.queued_us);
  }
  return most;
}

size_t GangScheduler::in_flight_of(uint32_t client) const {
  return static_cast<size_t>(std::count_if(flights_.begin(), flights_.end(),
                                           [client](const auto& entry) { return entry.second.gang.client == client; }));
}

}  // namespace pathways::scheduler
