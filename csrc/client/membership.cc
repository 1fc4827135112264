#include "csrc/client/membership.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/client/waiting.h"
#include "csrc/transport/shm.h"

namespace pathways::client {

using dataplane::DataPlane;

Status Membership::Open(Link::Sink controller, dataplane::DataSink* hosts,
                        const std::function<Status()>& still_wanted) {
  PW_ASSIGN_OR_RETURN(core_.link, core_.options.link(std::move(controller),
                                                     [this](const Status& status) { OnControllerLost(status); }));
  wire::Hello hello;
  hello.role = wire::Role::kClient;
  hello.build = core_.options.build;
  hello.name = core_.options.name;
  hello.pid = static_cast<uint64_t>(getpid());
  hello.machine = transport::MachineToken();
  hello.weight = core_.options.weight;
  hello.priority = core_.options.priority;
  PW_RETURN_IF_ERROR(core_.link->Join(hello));
  PW_RETURN_IF_ERROR(AwaitWelcome(still_wanted));
  return StartData(hello.machine, hosts);
}

Status Membership::AwaitWelcome(const std::function<Status()>& still_wanted) {
  const auto deadline = std::chrono::steady_clock::now() + core_.options.connect_timeout;
  for (;;) {
    const auto left = deadline - std::chrono::steady_clock::now();
    const auto slice = std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0), kInterruptSlice);
    if (std::optional<Status> answer = welcomed_->WaitFor(slice)) return *answer;
    if (left <= slice) break;
    if (still_wanted) PW_RETURN_IF_ERROR(still_wanted());
  }
  return Unavailable("expected an answer from the controller at " + core_.options.controller + " within " +
                     std::to_string(core_.options.connect_timeout.count() / 1000.0).substr(0, 5) +
                     " s, got none; check the address, and that `ptpathways controller` runs there");
}

Status Membership::StartData(const std::string& machine, dataplane::DataSink* hosts) {
  dataplane::DataPlaneOptions options;
  options.membership = membership_;
  options.machine = machine;
  options.curve = core_.options.keys.Curve(transport::Role::kWorker);
  options.transfer_timeout = core_.options.transfer_timeout;
  PW_ASSIGN_OR_RETURN(data_, DataPlane::Start(options, hosts));
  {
    std::lock_guard lock(core_.mutex);
    core_.data = data_.get();
    if (rotated_keys_) data_->Rotate(rotated_keys_->Curve(transport::Role::kWorker));
  }
  ConnectToHosts();
  data_->Every(std::chrono::milliseconds(heartbeat_interval_ms_), [this] {
    if (!core_.closed) core_.link->Beat();
  });
  data_->Every(std::chrono::milliseconds(20), [this] { core_.SendReleases(); });
  return OkStatus();
}

void Membership::Leave(const std::string& reason) {
  if (core_.link) {
    (void)core_.Send(wire::Goodbye{reason});  // nobody is left to hear of an error
    core_.link->Close();
  }
  if (data_) data_->Stop();
}

void Membership::Refused(const Status& status) {
  if (welcomed_->Set(status)) return;
  logging::Warning("", "refused a message of the controller: " + status.ToString());
}

void Membership::OnWelcome(wire::Welcome welcome) {
  core_.cluster = welcome.cluster;
  core_.client_index = welcome.peer;
  heartbeat_interval_ms_ = welcome.heartbeat_interval_ms;
  membership_ = {welcome.cluster, "", "", welcome.session};
  // An earlier client may have had this number. The ids of this one begin after all of its ids.
  core_.next_id = (static_cast<uint64_t>(welcome.peer) << wire::kClientShift) + wire::FirstIdOf(welcome.session);
  OnTopology({std::move(welcome.hosts), std::move(welcome.identities)});
  welcomed_->Set(OkStatus());
}

void Membership::OnTopology(wire::Topology topology) {
  {
    std::lock_guard lock(core_.mutex);
    if (!core_.hosts.Update(std::move(topology.hosts), topology.identities)) return;
  }
  ConnectToHosts();
}

void Membership::ConnectToHosts() {
  DataPlane* const plane = core_.data;
  if (plane == nullptr) return;
  std::vector<wire::HostDescription> hosts;
  {
    std::lock_guard lock(core_.mutex);
    hosts = core_.hosts.all();
  }
  for (const wire::HostDescription& host : hosts) {
    if (!host.alive || host.data_endpoint.empty()) continue;  // a host without values has nothing to move
    {
      std::lock_guard lock(core_.mutex);
      if (const std::string* known = core_.hosts.IdentityAt(host.host)) plane->SetIdentityAt(host.name, *known);
    }
    if (Status status = plane->ConnectTo(host.name, host.data_endpoint, host.machine, host.session);
        !status.ok() && !core_.closed) {
      logging::Warning("", "cannot reach host " + host.name + ": " + status.ToString());
    }
  }
}

void Membership::OnHostLost(const wire::HostLost& lost) {
  std::string name;
  {
    std::lock_guard lock(core_.mutex);
    if (!core_.hosts.Lose(lost.host, lost.reason)) return;
    name = core_.hosts[lost.host].name;
  }
  const Status status = Unavailable(lost.reason);
  if (DataPlane* const plane = core_.data) plane->PeerLost(DataPlane::PeerOfHost(name), status);
  end_({lost.host, status});
}

Status Membership::OnRotate(const wire::Rotate& rotate) {
  PW_ASSIGN_OR_RETURN(const auto keys, transport::KeysOfToken(rotate.token, transport::Role::kClient));
  core_.link->Rotate(keys.Curve(transport::Role::kController));
  std::lock_guard lock(core_.mutex);
  rotated_keys_ = keys;
  if (DataPlane* const plane = core_.data) plane->Rotate(keys.Curve(transport::Role::kWorker));
  return OkStatus();
}

void Membership::OnReject(const wire::Reject& reject) {
  if (welcomed_->Set(
          reject.status.WithPrefix("the controller at " + core_.options.controller + " refused this client"))) {
    return;
  }
  OnControllerLost(reject.status.WithPrefix("the controller refused a message"));
}

void Membership::OnGoodbye(const wire::Goodbye& goodbye) {
  OnControllerLost(Unavailable("the controller has ended: " + goodbye.reason));
}

void Membership::OnControllerLost(const Status& reason) {
  const InCallback in_callback;
  if (core_.closed) return;
  // Not UNAVAILABLE: by that a wait says that a host is lost.
  const std::string at = core_.options.controller.empty() ? "" : " at " + core_.options.controller;
  const Status status =
      Cancelled("no connection to the controller" + at + " any more: " + std::string(reason.message()));
  {
    std::lock_guard lock(core_.mutex);
    if (!core_.controller_lost.ok()) return;
    core_.controller_lost = status;
  }
  welcomed_->Set(reason);
  end_({std::nullopt, status});
}

}  // namespace pathways::client
