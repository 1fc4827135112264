// RunTimes: when the computations of a program's last runs began and ended on this host's devices. Nothing of it is
// sent until somebody asks.
//
// A plugin tells when a computation ended, not when it began. So it began when the last of these was over: that it was
// enqueued, that what it reads came, and that the computation before it on its device ended.
//
// On a machine without a free core, the thread that notes an end can be late: whatever waited for the result wakes up
// and runs first. So when a result could be taken elsewhere is noted, too (of those that wait for an event of XLA's the
// last one is told first), and a computation ends before those that read its results.
//
// Ownership: each program has its own, so that no other program's runs push its runs out; a run is shared with the
//            plugin's callbacks, which may outlast the program. A run's memory is used again when no callback will
//            write to it.
// Threads:   RunTimes, and adding to a run: the engine's. Span::End, Moment::at_ns and DeviceEnds: any; each span and
//            arrival is written by one.
// Locks:     none.
#ifndef PTPATHWAYS_WORKER_RUN_TIMES_H_
#define PTPATHWAYS_WORKER_RUN_TIMES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "csrc/pjrt/buffer.h"
#include "csrc/plan/plan.h"
#include "csrc/wire/times_bodies.h"

namespace pathways::worker {

// The steady clock, which the processes of a machine share.
inline int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// By local device: when its last computation ended.
class DeviceEnds {
 public:
  explicit DeviceEnds(size_t devices) : ends_(devices) {}
  // When the one before ended.
  int64_t Exchange(size_t device, int64_t now) { return ends_[device].exchange(now, std::memory_order_relaxed); }

 private:
  std::vector<std::atomic<int64_t>> ends_;
};

class RunTimes {
 public:
  // A computation on one device. Times of 0 are not known.
  struct Span {
    uint32_t step = 0;
    uint32_t device = 0;  // local
    int64_t enqueued_ns = 0;
    int64_t before_ns = 0;  // when the one before it on its device ended
    std::atomic<int64_t> end_ns{0};

    void End(int64_t before, int64_t now) {
      before_ns = before;
      end_ns.store(now, std::memory_order_release);
    }
  };
  // When a value that was not there yet came, or could be taken elsewhere.
  struct Moment {
    uint32_t slot = 0;
    uint32_t device = 0;
    std::atomic<int64_t> at_ns{0};
  };
  struct Run {
    explicit Run(size_t computations) : spans(computations) {}
    // The clock. The end of a computation that ran within its launch is the time at which the next one is enqueued, and
    // so small ones cost one reading each.
    int64_t NowNs() const { return read_ns != 0 ? read_ns : SteadyNs(); }
    Span* Add(size_t step, size_t device, int64_t enqueued_ns);  // nullptr: there is no room

    uint64_t run = 0;
    int64_t read_ns = 0;  // 0: it is to be read again
    // Callbacks that will still write here: each calls Written when it has. Counted up by the engine's thread.
    std::atomic<int> writers{0};
    void Written() { writers.fetch_sub(1, std::memory_order_release); }
    std::vector<Span> spans;  // never grows: callbacks write to it
    size_t used = 0;
    std::deque<Moment> arrivals, departures;
  };

  // Notes when a value comes, unless it is there; whether it did. It is what a slot holds on a local device. The
  // earliest note counts.
  static bool NoteArrival(const std::shared_ptr<Run>& run, uint32_t slot, size_t device, const pjrt::Buffer& value);
  // Notes when a value is there, after others have subscribed to that, so as to be told before them.
  static void NoteDeparture(const std::shared_ptr<Run>& run, uint32_t slot, size_t device, const pjrt::Buffer& value);

  // `computations`: of one run, on all devices of this host.
  explicit RunTimes(size_t computations) : computations_(computations) {}

  // Notes a run, in the place of the oldest one.
  std::shared_ptr<Run> Begin(uint64_t run);
  // What is known now. On one device no computation overlaps another.
  wire::Times Collect(const plan::Plan& plan, uint32_t first_device) const;

 private:
  wire::TimedRun Collect(const Run& run, const plan::Plan& plan, uint32_t first_device) const;

  const size_t computations_;
  std::deque<std::shared_ptr<Run>> runs_;  // the oldest first, at most wire::kMaxTimedRuns
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_RUN_TIMES_H_
