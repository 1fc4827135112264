// Session: asking, waiting, and what Ctrl-C does to both.
#include <algorithm>
#include <cstdio>
#include <set>

#include "csrc/base/interrupt.h"
#include "csrc/client/session_impl.h"

namespace pathways::client {

using Clock = std::chrono::steady_clock;

Result<Session::QueryAnswer> Session::Impl::Ask(wire::Query query, uint32_t host, const std::string& whom,
                                                std::chrono::milliseconds timeout) {
  query.request = MintIds();
  auto answer = std::make_shared<QueryAnswer>();
  auto event = Event::Make();
  {
    std::lock_guard lock(mutex);
    if (closed) return FailedPrecondition(LeftText());
    if (!controller_lost.ok()) return controller_lost;
    queries[query.request] = {event, answer, host};
  }
  PW_RETURN_IF_ERROR(Send(query));
  interrupt::Watch watch;
  std::optional<Status> status;
  std::optional<waits::Entry> entry;
  for (const auto deadline = Clock::now() + timeout; !status && Clock::now() < deadline && !watch.interrupted();) {
    status = event->WaitFor(std::min<std::chrono::nanoseconds>(deadline - Clock::now(), kInterruptSlice));
    if (!status && !entry) entry.emplace("an answer of " + whom);
  }
  if (!status) {
    std::lock_guard lock(mutex);
    queries.erase(query.request);
    if (watch.interrupted()) {
      watch.AboutToGiveUp();
      return Cancelled(interrupt::kMessage);
    }
    return DeadlineExceeded("expected " + whom + " to answer within " + std::to_string(timeout.count()) +
                            " ms, got nothing");
  }
  PW_RETURN_IF_ERROR(*status);
  return std::move(*answer);
}

Result<Session::QueryAnswer> Session::Ask(wire::QueryKind kind, uint64_t function, uint32_t device,
                                          std::chrono::milliseconds timeout) {
  PW_ASSIGN_OR_RETURN(uint32_t host, impl_->HostOf(device));
  wire::Query query;
  query.kind = kind;
  query.function = function;
  query.device = device;
  return impl_->Ask(query, host, "host '" + impl_->HostName(host) + "'", timeout);
}

Result<std::string> Session::ClusterStatus(std::chrono::milliseconds timeout) {
  wire::Query query;
  query.kind = wire::QueryKind::kStatus;
  PW_ASSIGN_OR_RETURN(QueryAnswer answer, impl_->Ask(query, UINT32_MAX, "the controller", timeout));
  return std::move(answer.payload);
}

Result<Session::QueryAnswer> Session::Ask(wire::QueryKind kind, const std::shared_ptr<Function>& function,
                                          uint32_t device, std::chrono::milliseconds timeout) {
  PW_RETURN_IF_ERROR(EnsureRegistered(*function, device));
  return Ask(kind, function->id(), device, timeout);
}

Status Session::Wait(const std::shared_ptr<Event>& event) {
  if (auto status = event->TryGet()) return *status;
  const auto start = Clock::now();
  interrupt::Watch watch;
  std::optional<Status> status;
  std::optional<waits::Entry> entry;
  while (!status && !watch.interrupted()) {
    status = event->WaitFor(kInterruptSlice);
    if (!status && !entry) entry.emplace("what was submitted to be done");
  }
  AccountWait(Clock::now() - start);
  if (status) return *status;
  watch.AboutToGiveUp();
  return Cancelled(interrupt::kMessage);
}

Status Session::WaitForCompile(const std::shared_ptr<Event>& event, const std::string& what, bool account) {
  if (auto status = event->TryGet()) return *status;
  const auto start = Clock::now();
  interrupt::Watch watch;
  std::optional<Status> status;
  const waits::Entry entry(what + " to be compiled");
  for (bool said = false; !status; status = event->WaitFor(kInterruptSlice)) {
    if (!watch.interrupted()) continue;
    if (said) break;
    said = true;
    watch.Settle();
    std::fprintf(stderr,
                 "ptpathways: %s is being compiled; the interrupt follows when that is done. Interrupt once more to "
                 "give the compilation up; the values that were to be computed, such as parameters, are lost then\n",
                 what.c_str());
  }
  if (account) AccountWait(Clock::now() - start);
  if (status) return *status;
  watch.AboutToGiveUp();
  return Cancelled(std::string(interrupt::kMessage) + " elsewhere; the compilation of " + what + " was given up");
}

void Session::AccountWait(std::chrono::nanoseconds waited) {
  impl_->waits += 1;
  impl_->wait_ns += static_cast<uint64_t>(waited.count());
}

WaitStats Session::wait_stats() const { return {impl_->waits, static_cast<double>(impl_->wait_ns) * 1e-9}; }

TransferStats Session::transfer_stats() const {
  return {impl_->uploaded, impl_->fetched, impl_->run_count, impl_->copies};
}

std::vector<std::string> Session::SilentHosts() const {
  std::vector<std::string> names;
  std::lock_guard lock(impl_->mutex);
  for (const wire::HostDescription& host : impl_->hosts) {
    if (host.alive == wire::kHostSilent) names.push_back(host.name);
  }
  return names;
}

std::vector<std::pair<std::string, uint64_t>> Session::Sends() const {
  auto sends = impl_->data_owner->open_transfers();
  for (auto& [peer, count] : sends) peer.erase(0, dataplane::DataPlane::PeerOfHost("").size());
  std::sort(sends.begin(), sends.end());
  return sends;
}

std::vector<Session::PendingItem> Session::Pending() const {
  std::vector<PendingItem> out;
  std::lock_guard lock(impl_->mutex);
  const auto host_list = [](const std::set<uint32_t>& hosts) {
    return std::vector<uint32_t>(hosts.begin(), hosts.end());
  };
  for (const auto& [id, run] : impl_->runs) {
    out.push_back({"run", *run.what, run.hosts ? *run.hosts : std::vector<uint32_t>{run.host}, run.since_ms});
  }
  for (const auto& [id, function] : impl_->functions) {
    if (function.waiting_for.empty() || !function.what) continue;
    out.push_back({"compile", *function.what, host_list(function.waiting_for), function.since_ms});
  }
  for (const auto& [id, program] : impl_->programs) {
    if (program.waiting_for.empty()) continue;
    out.push_back({"prepare", *program.what, host_list(program.waiting_for), program.since_ms});
  }
  impl_->fetches.ForEach([&](const PendingFetch& fetch) {
    out.push_back({"fetch", std::to_string(fetch.size) + " bytes", {fetch.host}, fetch.since_ms});
  });
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.since_ms < b.since_ms; });
  return out;
}

Status Session::Drain(std::chrono::milliseconds timeout) {
  const waits::Entry entry("everything that was submitted");
  std::unique_lock lock(impl_->mutex);
  const bool idle = impl_->changed.wait_for(lock, timeout, [&] { return impl_->runs.empty() || impl_->closed; });
  if (idle) return impl_->controller_lost;
  std::set<std::string> names;
  for (const auto& [id, run] : impl_->runs) names.insert(impl_->hosts[run.host].name);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return DeadlineExceeded("expected all runs to finish within " + std::to_string(timeout.count()) + " ms, got " +
                          std::to_string(impl_->runs.size()) + " unfinished on " + list);
}

}  // namespace pathways::client
