#include "csrc/worker/start_devices.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "csrc/pjrt/custom_calls.h"
#include "csrc/transport/shm.h"
#include "csrc/worker/enqueue_probe.h"
#include "csrc/worker/note.h"
#include "csrc/worker/staging.h"

namespace pathways::worker {
namespace {

// Takes this host's place among the island's hosts and says so in `create_options`.
Status JoinIsland(const EngineOptions& options, const pjrt::Api& api, IslandLink& link,
                  std::function<void(const Status&)> on_lost, pjrt::NamedValues* create_options) {
  wire::IslandJoin request;
  request.build = options.build;
  request.name = options.name;
  request.pid = static_cast<uint64_t>(getpid());
  request.island = options.island;
  request.hosts = options.island_hosts;
  request.platform = options.platform;
  std::error_code ignored;  // a plugin found by name alone has no size here; its version remains
  request.plugin =
      "of " + std::to_string(std::filesystem::file_size(options.plugin, ignored)) + " bytes with " + api.VersionText();
  request.timeout_ms = static_cast<uint64_t>(options.island_timeout.count());
  PW_ASSIGN_OR_RETURN(const uint32_t node, link.Join(request, std::move(on_lost)));
  if (!options.node_id_option.empty()) (*create_options)[options.node_id_option] = static_cast<int64_t>(node);
  if (!options.num_nodes_option.empty()) {
    (*create_options)[options.num_nodes_option] = static_cast<int64_t>(options.island_hosts);
  }
  return OkStatus();
}

int64_t LimitOf(const EngineOptions& options, const pjrt::Client& client, int device) {
  int64_t limit = options.memory_limit_bytes;
  if (limit == 0) {
    auto stats = client.GetMemoryStats(device);
    if (stats && stats->limit_bytes) limit = *stats->limit_bytes;
  }
  // CPU devices take the host's memory. Without a limit, what cannot fit would end the process instead of the run.
  if (limit == 0 && options.platform == "cpu") {
    limit = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 10 * 9;
  }
  return limit;
}

Result<EnqueueAhead> HowFarAhead(const HostContext& context, const std::shared_ptr<pjrt::Client>& client) {
  if (client->platform_name() == "cpu") return EnqueueAhead::kAlways;
  const Result<ProbedEnqueue> probed = ProbeEnqueue(client);
  if (probed.ok() && !probed->ends_waits) {
    return FailedPrecondition(
        "expected a plugin that ends what waits for a transfer when that fails, got one whose buffer was still waited "
        "for after " +
        std::to_string(kEventPatience.count()) + " s: " + client->platform_version());
  }
  if (probed.ok() && !probed->waits) {
    if (probed->hands_errors_on) return EnqueueAhead::kAlways;
    context.Log(
        "computations are enqueued when the values have arrived that they take from transfers, because the "
        "plugin does not hand a failed value's error on to what was enqueued on it");
    return EnqueueAhead::kAfterTransfers;
  }
  context.Log("computations are enqueued when their arguments have arrived, because the plugin " +
              (probed.ok() ? "makes who enqueues one wait for them"
                           : "could not be asked whether it waits for them: " + probed.status().ToString()));
  return EnqueueAhead::kAfterArguments;
}

}  // namespace

Result<StartedDevices> StartDevices(const EngineOptions& options, const HostContext& context,
                                    const std::shared_ptr<IslandLink>& link,
                                    std::function<void(const Status&)> on_lost) {
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<pjrt::Api> api, pjrt::Api::Load(options.plugin));
  pjrt::NamedValues create_options = options.create_options;
  if (link) PW_RETURN_IF_ERROR(JoinIsland(options, *api, *link, std::move(on_lost), &create_options));
  StartedDevices started;
  PW_ASSIGN_OR_RETURN(started.client, pjrt::Client::Create(api, create_options, link));
  PW_RETURN_IF_ERROR(pjrt::RegisterCustomCalls(*api, options.platform));
  const size_t count = started.client->devices().size();
  if (count == 0) {
    return FailedPrecondition("expected plugin " + options.plugin + " to offer at least one device, got none");
  }
  for (size_t device = 0; device < count; ++device) {
    started.limits.push_back(LimitOf(options, *started.client, static_cast<int>(device)));
  }
  PW_ASSIGN_OR_RETURN(started.enqueue_ahead, HowFarAhead(context, started.client));
  return started;
}

std::optional<DiskCache> OpenDiskCache(const EngineOptions& options, const pjrt::Client& client) {
  if (options.cache_dir.empty()) return std::nullopt;
  std::error_code ignored;  // a plugin found by name alone has no size here; its version remains
  const auto bytes = std::filesystem::file_size(options.plugin, ignored);
  const char* const flags = std::getenv("XLA_FLAGS");
  std::string maker = options.platform + '\n' + client.platform_version() + '\n' + options.plugin + '\n' +
                      std::to_string(bytes) + '\n' + client.devices()[0].kind + '\n' + ProcessorText() + '\n' +
                      DriverText() + '\n' + (flags == nullptr ? "" : flags);
  Result<DiskCache> disk = DiskCache::Open(options.cache_dir, std::move(maker));
  if (!disk.ok()) Note("compiled programs are not kept for the next start: " + disk.status().ToString());
  return disk.ok() ? std::optional<DiskCache>(*std::move(disk)) : std::nullopt;
}

wire::Hello HelloOf(const EngineOptions& options, const HostContext& context) {
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = options.build;
  hello.name = options.name;
  hello.pid = static_cast<uint64_t>(getpid());
  hello.machine = transport::MachineToken();
  hello.platform = options.platform;
  hello.platform_version = context.client()->platform_version();
  hello.island = options.island;
  for (const pjrt::DeviceInfo& device : context.client()->devices()) {
    wire::DeviceDescription description;
    description.local_ordinal = static_cast<uint32_t>(hello.devices.size());
    description.kind = device.kind;
    description.plugin_id = device.id;
    description.memory_limit_bytes = context.store().account().limit(hello.devices.size());
    hello.devices.push_back(std::move(description));
  }
  hello.staging_limit_bytes = StagingLimit(context);
  return hello;
}

}  // namespace pathways::worker
