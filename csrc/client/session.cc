#include "csrc/client/session.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

namespace pathways::client {
namespace {

// Leaked: the PJRT plugin may be asked during interpreter shutdown.
std::mutex& CurrentMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::shared_ptr<Session>& CurrentSlot() {
  static auto* slot = new std::shared_ptr<Session>;
  return *slot;
}

}  // namespace

Session::~Session() { Close("the client dropped its session"); }

Result<std::shared_ptr<Session>> Session::Connect(const SessionOptions& options,
                                                  const std::function<Status()>& still_wanted) {
  // A callback may drop the last reference, for example with a value that a fetch kept.
  const auto end = [](Session* session) {
    if (!InCallback::on_this_thread()) {
      delete session;
    } else {
      std::thread([session] { delete session; }).detach();
    }
  };
  std::shared_ptr<Session> session(new Session(options), end);
  Parts& parts = session->parts_;
  const auto sink = [&parts](const std::string& head, std::vector<Payload> payloads) {
    parts.incoming.OnMessage(head, std::move(payloads));
  };
  const Status status = parts.membership.Open(sink, &parts.transfers, still_wanted);
  if (!status.ok()) {
    session->Close("could not connect");
    return status;
  }
  return session;
}

std::vector<wire::HostDescription> Session::hosts() const {
  std::lock_guard lock(parts_.core.mutex);
  return parts_.core.hosts.all();
}

uint32_t Session::device_count() const {
  std::lock_guard lock(parts_.core.mutex);
  return parts_.core.hosts.device_count();
}

TransferStats Session::transfer_stats() const {
  return {parts_.transfers.uploaded(), parts_.transfers.fetched(), parts_.runs.count(), parts_.buffers.copies()};
}

std::vector<std::string> Session::SilentHosts() const {
  std::vector<std::string> names;
  std::lock_guard lock(parts_.core.mutex);
  for (const wire::HostDescription& host : parts_.core.hosts.all()) {
    if (host.alive == wire::kHostSilent) names.push_back(host.name);
  }
  return names;
}

std::vector<std::pair<std::string, uint64_t>> Session::Sends() const {
  auto sends = parts_.core.data.load()->open_transfers();
  for (auto& [peer, count] : sends) peer.erase(0, dataplane::DataPlane::PeerOfHost("").size());
  std::sort(sends.begin(), sends.end());
  return sends;
}

void Session::Close(const std::string& reason) {
  Core& core = parts_.core;
  if (core.closed.exchange(true)) return;
  core.changed.notify_all();
  parts_.membership.Leave(reason);
  parts_.End({.host = std::nullopt, .reason = Cancelled("the session is closed: " + reason), .closed = true});
  std::lock_guard lock(CurrentMutex());
  if (CurrentSlot().get() == this) CurrentSlot().reset();
}

void Session::SetCurrent(std::shared_ptr<Session> session) {
  std::lock_guard lock(CurrentMutex());
  CurrentSlot() = std::move(session);
}

std::shared_ptr<Session> Session::Current() {
  std::lock_guard lock(CurrentMutex());
  return CurrentSlot();
}

}  // namespace pathways::client
