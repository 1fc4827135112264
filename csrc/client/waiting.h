// Waiting: the user's waits, what Ctrl-C does to them, and how long they took.
//
// Ownership: owned by the session. Threads: any. Locks: none; the time is kept in atomics.
#ifndef PTPATHWAYS_CLIENT_WAITING_H_
#define PTPATHWAYS_CLIENT_WAITING_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "csrc/base/event.h"
#include "csrc/base/interrupt.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/base/waits.h"

namespace pathways::client {

struct WaitStats {
  uint64_t waits = 0;
  double seconds = 0;
};

class Waiting {
 public:
  // Waits; the time counts as "the client waited". CANCELLED when a Ctrl-C came meanwhile (base/interrupt.h).
  Status Wait(const std::shared_ptr<Event>& event);
  // Waits for a compilation. The first Ctrl-C during it is only reported, since callers of the C API lose the values of
  // what they compile when it fails; a second one gives the compilation up. `what`: for the message.
  // `account`: whether the thread that waits is the user's, so that its time counts.
  Status WaitForCompile(const std::shared_ptr<Event>& event, const std::string& what, bool account = true);
  // Counts a wait that happened elsewhere.
  void Account(std::chrono::nanoseconds waited);
  WaitStats stats() const { return {waits_, static_cast<double>(nanoseconds_) * 1e-9}; }

 private:
  std::atomic<uint64_t> waits_{0}, nanoseconds_{0};
};

// How long a wait sleeps before it looks for a Ctrl-C.
inline constexpr std::chrono::milliseconds kInterruptSlice{50};

// The event's outcome; none when the deadline passes or a Ctrl-C comes first. `what`: what the thread waits for, as
// reported in waits::UnderWay.
std::optional<Status> AwaitUnlessInterrupted(
    const Event& event, const interrupt::Watch& watch, std::string_view what,
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());

// Waits until `has_room()`, or until a Ctrl-C comes: it is for bounds that keep a tight loop from filling memory, not
// for needs, so a Ctrl-C passes them, and the loop then ends in its own code. The thread that waits may be one of
// PyTorch/XLA's, on behalf of the main thread.
template <typename Predicate>
void WaitForRoom(UniqueLock& lock, std::condition_variable& changed, const char* what, Predicate has_room) {
  interrupt::Observe();
  const uint64_t signals = interrupt::Count();
  std::optional<waits::Entry> entry;
  while (!changed.wait_for(lock, kInterruptSlice, has_room)) {
    if (interrupt::Count() != signals) return;
    if (!entry) entry.emplace(what);
  }
}

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_WAITING_H_
