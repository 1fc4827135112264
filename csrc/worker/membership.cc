#include "csrc/worker/membership.h"

#include <chrono>

#include "csrc/base/clock.h"
#include "csrc/transport/keys.h"
#include "csrc/transport/shm.h"

namespace pathways::worker {
namespace {

// The locks of a process that ends are free a moment after its connections are closed.
constexpr std::chrono::seconds kLocksGrace{1};
// Other plugins than the CPU's may wait for other hosts on the thread that enqueues, as long as those take.
constexpr int kLeasesOfOtherPlugins = 10;

}  // namespace

Status Membership::Welcome(const wire::Welcome& welcome) {
  data_.Join({welcome.cluster, "", welcome.data_key, welcome.session});
  if (welcome.peer >= welcome.hosts.size()) return DataLoss("WELCOME does not describe this host");
  context_.Joined(welcome.cluster, welcome.peer, welcome.hosts[welcome.peer].first_device);
  gangs_.Start();
  Topology(welcome.hosts, welcome.identities);
  watch_.emplace(welcome.lease_ms * (context_.is_cpu() ? 1 : kLeasesOfOtherPlugins));
  context_.SetServing(true);
  data_.Every(std::chrono::milliseconds(welcome.heartbeat_interval_ms), [this] { OnTimer(); });
  return OkStatus();
}

void Membership::Topology(const std::vector<wire::HostDescription>& hosts,
                          const std::vector<wire::IdentityAt>& identities) {
  cluster_.Set(hosts);
  for (const wire::IdentityAt& at : identities) {
    if (at.host < hosts.size()) data_.SetIdentityAt(hosts[at.host].name, at.identity);
  }
  incoming_.SetHosts(cluster_.Names());
  gangs_.HostsChanged();
}

void Membership::HostLost(const wire::HostLost& lost) {
  const wire::HostDescription* const host = cluster_.Lose(lost.host);
  if (host == nullptr) return;
  const Status status = Unavailable(lost.reason);
  causes_.Remember(lost.reason, status);
  incoming_.FailFromHost(lost.host, status);
  gangs_.HostLost(lost.host, status);
  data_.PeerLost(dataplane::DataPlane::PeerOfHost(host->name), status);
  data_.PeerLost("w/" + host->name, status, host->session);
  // If it was killed on this machine, its shared memory is still there.
  if (host->machine == cluster_.Find(context_.number())->machine) {
    context_.engine().AddTimer(kLocksGrace, {}, [] { (void)transport::CleanUpDead(); });
  }
}

Status Membership::Rotate(const wire::Rotate& rotate) {
  PW_ASSIGN_OR_RETURN(const auto keys, transport::KeysOfToken(rotate.token, transport::Role::kWorker));
  control_.Rotate(keys.Curve(transport::Role::kController));
  data_.Rotate(keys.Curve(transport::Role::kWorker));
  return OkStatus();
}

void Membership::OnTimer() {
  if (!context_.serving()) return;
  WatchEngine();
  control_.Beat(context_.live_buffers(), context_.live_bytes(), static_cast<uint64_t>(watch_->still_ms()));
  gangs_.ReportStalls();
}

void Membership::WatchEngine() {
  switch (watch_->Look(NowMs(), context_.engine().CpuTime().count())) {
    case EngineWatch::Decision::kWait:
      return;
    case EngineWatch::Decision::kAsk:
      return context_.engine().Post([this] { watch_->Turned(); });
    case EngineWatch::Decision::kHangs:
      const std::string reason = "its engine hangs: for " + std::to_string(watch_->still_ms()) +
                                 " ms its thread has neither taken a message nor computed; it waits inside the " +
                                 context_.platform() + " plugin or a custom call";
      // The goodbye leaves while this process still runs: it ends at the next tick.
      if (hangs_.exchange(true)) return stopper_.Stop(kExitFailed, reason);
      context_.Send(wire::Goodbye{reason});
  }
}

}  // namespace pathways::worker
