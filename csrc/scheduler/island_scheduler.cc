#include "csrc/scheduler/island_scheduler.h"

namespace pathways::scheduler {

Result<uint64_t> IslandScheduler::Submit(const Gang& gang) {
  auto [it, fresh] = in_flight_.try_emplace(gang.run, InFlight{gang.client, gang.host_count, last_sequence_ + 1});
  if (!fresh) {
    return Status(Code::kAlreadyExists, "expected a new run id, got " + std::to_string(gang.run) +
                                            ", which is in flight; a client mints every id once");
  }
  ++accounts_[gang.client].gangs_submitted;
  return ++last_sequence_;
}

bool IslandScheduler::PartDone(uint64_t run, double device_seconds) {
  auto it = in_flight_.find(run);
  if (it == in_flight_.end()) return false;
  ClientAccount& account = accounts_[it->second.client];
  account.device_seconds += device_seconds;
  if (--it->second.parts_left > 0) return false;
  ++account.gangs_finished;
  in_flight_.erase(it);
  return true;
}

void IslandScheduler::DropClient(uint32_t client) {
  std::erase_if(in_flight_, [client](const auto& entry) { return entry.second.client == client; });
}

}  // namespace pathways::scheduler
