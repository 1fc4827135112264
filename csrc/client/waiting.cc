#include "csrc/client/waiting.h"

#include <algorithm>

#include "csrc/base/log.h"

namespace pathways::client {

using Clock = std::chrono::steady_clock;

std::optional<Status> AwaitUnlessInterrupted(const Event& event, const interrupt::Watch& watch, std::string_view what,
                                             Clock::time_point deadline) {
  std::optional<Status> status;
  std::optional<waits::Entry> entry;
  while (!status && !watch.interrupted()) {
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) break;
    status = event.WaitFor(std::min<std::chrono::nanoseconds>(left, kInterruptSlice));
    if (!status && !entry) entry.emplace(std::string(what));
  }
  return status;
}

Status Waiting::Wait(const std::shared_ptr<Event>& event) {
  if (auto status = event->TryGet()) return *status;
  const auto start = Clock::now();
  const interrupt::Watch watch;
  const std::optional<Status> status = AwaitUnlessInterrupted(*event, watch, "what was submitted to be done");
  Account(Clock::now() - start);
  if (status) return *status;
  watch.AboutToGiveUp();
  return Cancelled(interrupt::kMessage);
}

Status Waiting::WaitForCompile(const std::shared_ptr<Event>& event, const std::string& what, bool account) {
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
    logging::Warning("",
                     what +
                         " is being compiled; the interrupt follows when that is done. Interrupt once more to give the "
                         "compilation up; the values that were to be computed, such as parameters, are lost then");
  }
  if (account) Account(Clock::now() - start);
  if (status) return *status;
  watch.AboutToGiveUp();
  return Cancelled(std::string(interrupt::kMessage) + " elsewhere; the compilation of " + what + " was given up");
}

void Waiting::Account(std::chrono::nanoseconds waited) {
  waits_ += 1;
  nanoseconds_ += static_cast<uint64_t>(waited.count());
}

}  // namespace pathways::client
