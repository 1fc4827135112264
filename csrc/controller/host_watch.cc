#include "csrc/controller/host_watch.h"

#include <map>

namespace pathways::controller {
namespace {

// A worker looks at its engine with each heartbeat, and small computations run on that thread.
constexpr uint64_t kEngineStillMs = 1500;

}  // namespace

std::string HostWatch::DescribeWork(const scheduler::Unfinished& what) const {
  const Client* client = clients_.Find(what.client);
  return client == nullptr ? "a computation" : client->DescribeWork(what.work);
}

bool HostWatch::IsOverdue(uint32_t host, const scheduler::Unfinished& what, uint64_t now_ms) const {
  return watch_.IsOverdue(host, what, scheduler_.estimate_us(what.work), now_ms);
}

void HostWatch::Tick(Outbox& outbox) {
  if (watch_.limit_ms() == 0) return;
  std::map<uint32_t, scheduler::Unfinished> overdue = scheduler_.UnfinishedByHost(outbox.now_ms(), watch_.limit_ms());
  // One that is silent is told of already.
  std::erase_if(overdue, [&](const auto& entry) {
    const bool is_silent = hosts_[entry.first].description.alive == wire::kHostSilent;
    return !IsOverdue(entry.first, entry.second, outbox.now_ms()) || (is_silent && !watch_.Knows(entry.first));
  });
  for (const OverdueWatch::Change& change : watch_.Look(overdue, outbox.now_ms())) {
    const std::string who = hosts_[change.host].Describe();
    const scheduler::Unfinished& what = change.what;
    const std::string device = "device " + std::to_string(what.device);
    if (change.over_ms != 0) {
      outbox.Note(who + " has finished something on " + device + " again, after " +
                  std::to_string(change.over_ms / 1000) + " s");
      continue;
    }
    const uint64_t engine_ms = hosts_[change.host].load.engine_still_ms;
    outbox.Note(
        who + " has finished nothing on " + device + " for " + std::to_string(what.still_ms / 1000) + " s, with " +
        std::to_string(what.gangs) + (what.gangs == 1 ? " computation" : " computations") + " to do; the first is " +
        DescribeWork(what) + " of " + clients_.at(what.client).Describe() + ", sent " +
        std::to_string(what.age_ms / 1000) +
        (engine_ms >= kEngineStillMs
             ? " s ago; the worker's engine has neither taken a message nor computed for " +
                   std::to_string(engine_ms / 1000) + " s: it waits inside the plugin or a custom call"
             : " s ago; the worker's engine takes messages: the computation is long, waits for what it reads, or the "
               "device hangs"));
  }
}

}  // namespace pathways::controller
