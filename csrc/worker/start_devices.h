// StartDevices: loads the plugin of a worker's devices, if need be together with the island's other hosts.
//
// Ownership: plain functions. Threads: "pw-start"; they take long.
#ifndef PTPATHWAYS_WORKER_START_DEVICES_H_
#define PTPATHWAYS_WORKER_START_DEVICES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/worker/disk_cache.h"
#include "csrc/worker/engine_options.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/island_link.h"

namespace pathways::worker {

struct StartedDevices {
  std::shared_ptr<pjrt::Client> client;
  std::vector<int64_t> limits;  // bytes of each; 0: none
  EnqueueAhead enqueue_ahead = EnqueueAhead::kAlways;
};

// `link`: to the hosts whose plugins make one client together, or null. `on_lost`: one of them is lost, which ends
// this host.
Result<StartedDevices> StartDevices(const EngineOptions& options, const HostContext& context,
                                    const std::shared_ptr<IslandLink>& link,
                                    std::function<void(const Status&)> on_lost);
// Where compiled programs outlive this process; nothing when that is nowhere.
std::optional<DiskCache> OpenDiskCache(const EngineOptions& options, const pjrt::Client& client);
// What this host says of itself to join. Its data endpoint is the caller's to add.
wire::Hello HelloOf(const EngineOptions& options, const HostContext& context);

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_START_DEVICES_H_
