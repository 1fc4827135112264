// HostSite: what every part of a simulated host needs of it: who and where it is, the world that it shares with the
// other hosts, how much its devices hold, and the way to the controller.
//
// Ownership: owned by the host, which outlives all parts; borrows the world, shares the account with buffers.
// Threads:   none inside; the cluster's one thread. Only the host itself changes it: it joins, and it dies.
#ifndef PTPATHWAYS_SIM_HOST_SITE_H_
#define PTPATHWAYS_SIM_HOST_SITE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/sim/compiler.h"
#include "csrc/sim/fleet.h"
#include "csrc/sim/network.h"
#include "csrc/sim/timeline.h"
#include "csrc/sim/trace.h"
#include "csrc/store/memory_account.h"
#include "csrc/wire/bodies.h"

namespace pathways::sim {

class DoneReport;

// What all hosts of a simulated cluster share.
struct World {
  World(CompilerOptions compiler_options, NetworkOptions network_options)
      : fleet(&timeline, &trace), network(&timeline, network_options), compiler(std::move(compiler_options)) {}
  World(const World&) = delete;

  void AddHost(uint32_t host, uint32_t first_device, uint32_t devices);
  // Its devices and its transfers fail with `error`. Idempotent: every host is told of the same loss.
  void LoseHost(uint32_t host, const Status& error);

  Timeline timeline;
  Trace trace;
  Fleet fleet;
  Network network;
  Compiler compiler;
  int64_t compile_ns = 0;
  std::vector<DoneReport*> news;         // with something to tell; whoever drives the world flushes them
  std::vector<uint32_t> device_to_host;  // of hosts that have joined
  // Devices of functions, shared between the hosts of one slice.
  std::unordered_map<uint64_t, std::weak_ptr<const std::vector<uint32_t>>> device_lists;
};

struct HostSpec {
  std::string name;
  std::string island;
  std::string build;
  uint32_t devices = 1;
  int64_t memory_limit_bytes = 0;  // per device
};

using Payload = std::shared_ptr<const std::string>;

struct HostSite {
  // Gives a message to the controller.
  using Reply = std::function<void(std::string head, std::vector<Payload> payloads)>;

  HostSite(World& world_of_all, HostSpec its_spec, Reply to_controller)
      : world(world_of_all),
        spec(std::move(its_spec)),
        reply(std::move(to_controller)),
        account(std::make_shared<store::MemoryAccount>(std::vector<int64_t>(spec.devices, spec.memory_limit_bytes))) {}
  HostSite(const HostSite&) = delete;

  bool IsLocal(uint32_t device) const { return device >= first_device && device - first_device < spec.devices; }
  // With this host's name.
  Status Here(const Status& status) const {
    return status.ok() ? status : status.WithPrefix("host '" + spec.name + "'");
  }
  Status Invalid(std::string text) const { return Here(InvalidArgument(std::move(text))); }
  // Whether `bytes` fit on one of its devices.
  Status CheckMemory(uint32_t device, int64_t bytes, const std::string& what) const {
    return Here(account->Check(device - first_device, bytes, 0, what));
  }
  template <typename Body>
  void Send(const Body& body, std::vector<Payload> payloads = {}) const {
    if (alive) reply(wire::Encode(body), std::move(payloads));
  }

  World& world;
  const HostSpec spec;
  const Reply reply;
  const std::shared_ptr<store::MemoryAccount> account;
  bool joined = false;
  bool alive = true;
  uint32_t index = 0;
  uint32_t first_device = 0;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_HOST_SITE_H_
