#include "csrc/sim/timeline.h"

#include <algorithm>

namespace pathways::sim {

void Timeline::At(int64_t when, Task task) { tasks_.push({when, next_order_++, std::move(task)}); }

bool Timeline::RunNext() {
  if (tasks_.empty()) return false;
  const int64_t when = tasks_.top().when;
  Task task = std::move(tasks_.top().task);
  tasks_.pop();
  now_ = std::max(now_, when);
  task(when);
  return true;
}

void Timeline::RunDue(int64_t now) {
  now_ = std::max(now_, now);
  while (!tasks_.empty() && tasks_.top().when <= now) {
    const int64_t when = tasks_.top().when;
    Task task = std::move(tasks_.top().task);
    tasks_.pop();
    task(when);
  }
}

}  // namespace pathways::sim
