#include "csrc/values/client.h"

#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/thread_annotations.h"
#include "csrc/values/buffer.h"

namespace pathways::values {

ClientState::ClientState(std::shared_ptr<client::Session> session, const ClientOptions& options)
    : logical_(options.logical_devices > 0),
      session_(std::move(session)),
      sequencer_(std::make_shared<Sequencer>(options.gang_timeout)),
      live_(std::make_unique<LiveBuffers>()) {}

ClientState::~ClientState() = default;

Result<std::shared_ptr<ClientState>> ClientState::Create(std::shared_ptr<client::Session> session,
                                                         const ClientOptions& options) {
  const std::vector<wire::HostDescription> hosts = session->hosts();
  const std::string cluster = session->cluster();
  std::shared_ptr<ClientState> state(new ClientState(std::move(session), options));
  std::vector<int64_t> live;
  std::set<std::string> platforms;
  for (const wire::HostDescription& host : hosts) {
    if (!host.alive || host.devices.empty()) continue;
    for (size_t i = 0; i < host.devices.size(); ++i) live.push_back(host.first_device + static_cast<int64_t>(i));
    platforms.insert(host.platform + " " + host.platform_version);
  }
  const std::vector<int64_t>& bound = options.devices.empty() ? live : options.devices;
  if (bound.empty()) {
    return FailedPrecondition("cluster '" + cluster + "' has no devices; start workers first");
  }
  state->platform_version_ = "ptpathways over";
  for (const std::string& platform : platforms) state->platform_version_ += " " + platform + ";";
  if (!platforms.empty()) state->platform_version_.pop_back();
  if (state->is_logical()) {
    state->devices_.AddLogical(state.get(), options.logical_devices);
  } else {
    PW_RETURN_IF_ERROR(state->devices_.AddBound(state.get(), hosts, bound));
  }
  return state;
}

Status ClientState::Bind(int64_t id, std::vector<uint32_t> devices) {
  PJRT_Device* const device = logical_ ? devices_.Find(id) : nullptr;
  if (device == nullptr) {
    return InvalidArgument("expected a logical device below " + std::to_string(logical_ ? devices_.all().size() : 0) +
                           ", got " + std::to_string(id));
  }
  device->Bind(devices.empty() ? nullptr : std::make_shared<const std::vector<uint32_t>>(std::move(devices)));
  return OkStatus();
}

Status ClientState::Attach(std::shared_ptr<client::Session> session) {
  if (!logical_) PW_RETURN_IF_ERROR(devices_.CheckSame(*session));
  session_.store(std::move(session));
  if (!logical_) return OkStatus();
  for (PJRT_Device* device : devices_.all()) device->Bind(nullptr);
  return OkStatus();
}

namespace {

struct Clients {
  std::mutex mutex;
  std::vector<std::weak_ptr<ClientState>> states PW_GUARDED_BY(mutex);
};

Clients& AllClients() {
  static auto* const clients = new Clients;  // leaked: PJRT may be asked during interpreter shutdown
  return *clients;
}

// Those that live; let go of without the lock.
std::vector<std::shared_ptr<ClientState>> LiveClients() {
  std::vector<std::shared_ptr<ClientState>> live;
  Clients& clients = AllClients();
  std::lock_guard lock(clients.mutex);
  for (const std::weak_ptr<ClientState>& each : clients.states) {
    if (std::shared_ptr<ClientState> client = each.lock()) live.push_back(std::move(client));
  }
  return live;
}

}  // namespace

void AddClient(const std::shared_ptr<ClientState>& client) {
  Clients& clients = AllClients();
  std::lock_guard lock(clients.mutex);
  clients.states.push_back(client);
}

Result<bool> AttachClients(const std::shared_ptr<client::Session>& session) {
  const std::vector<std::shared_ptr<ClientState>> clients = LiveClients();
  for (const std::shared_ptr<ClientState>& client : clients) PW_RETURN_IF_ERROR(client->Attach(session));
  return !clients.empty();
}

Result<std::shared_ptr<ClientState>> LogicalClient() {
  for (const std::shared_ptr<ClientState>& client : LiveClients()) {
    if (client->is_logical()) return client;
  }
  return FailedPrecondition("no client of this process has logical devices");
}

}  // namespace pathways::values
