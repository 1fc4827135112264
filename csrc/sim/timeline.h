// Timeline: what happens next, in order of time. The clock of a simulated cluster, virtual or real.
//
// Virtual time jumps from event to event; in real time a thread calls RunDue with the time of the day. Either way an
// event is told the time it was meant for, so that a late thread does not shift what follows from it.
//
// Ownership: owns the tasks. Threads: none inside; use from one thread. Times are nanoseconds.
#ifndef PTPATHWAYS_SIM_TIMELINE_H_
#define PTPATHWAYS_SIM_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace pathways::sim {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class Timeline {
 public:
  using Task = std::function<void(int64_t at)>;

  int64_t now() const { return now_; }
  // Equal times run in the order of the calls. A time that is past runs next.
  void At(int64_t when, Task task);

  // When the next task is due; kNever when there is none.
  int64_t next() const { return tasks_.empty() ? kNever : tasks_.top().when; }
  bool empty() const { return tasks_.empty(); }

  // Virtual time: jumps to the next task and runs it; false when there is none.
  bool RunNext();
  // Real time: runs everything due at `now`.
  void RunDue(int64_t now);
  void SetNow(int64_t now) { now_ = now; }

 private:
  struct Entry {
    int64_t when;
    uint64_t order;
    mutable Task task;
    bool operator<(const Entry& other) const {  // the queue's top is the largest
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  std::priority_queue<Entry> tasks_;
  uint64_t next_order_ = 0;
  int64_t now_ = 0;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_TIMELINE_H_
