// Event: a one-shot future of a Status, the form in which completion travels through client, plugin and worker.
//
// Ownership: shared; the producer calls Set exactly once, any number of consumers wait or subscribe.
// Threads:   every method may be called from any thread. Callbacks run on the thread that calls Set (or, when the
//            event is already set, on the subscriber's), outside the lock; they must not block.
#ifndef PTPATHWAYS_BASE_EVENT_H_
#define PTPATHWAYS_BASE_EVENT_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"

namespace pathways {

class Event {
 public:
  using Callback = std::function<void(const Status&)>;

  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  static std::shared_ptr<Event> Make() { return std::make_shared<Event>(); }
  static std::shared_ptr<Event> Done(const Status& status);

  // Sets the outcome. Later calls are ignored, so that a lost host and a late answer may race; returns false then.
  bool Set(const Status& status);

  bool IsReady() const;
  // The outcome if set, nothing before.
  std::optional<Status> TryGet() const;
  Status Wait() const;
  // Nothing when `timeout` passes first.
  std::optional<Status> WaitFor(std::chrono::nanoseconds timeout) const;
  void OnReady(Callback callback);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Status> status_ PW_GUARDED_BY(mutex_);
  std::vector<Callback> callbacks_ PW_GUARDED_BY(mutex_);
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_EVENT_H_
