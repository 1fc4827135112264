#include "csrc/base/event.h"

namespace pathways {

std::shared_ptr<Event> Event::Done(const Status& status) {
  auto event = Make();
  event->Set(status);
  return event;
}

bool Event::Set(const Status& status) {
  std::vector<Callback> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (status_) return false;
    status_ = status;
    callbacks.swap(callbacks_);
  }
  changed_.notify_all();
  for (const Callback& callback : callbacks) callback(status);
  return true;
}

bool Event::IsReady() const {
  std::lock_guard lock(mutex_);
  return status_.has_value();
}

std::optional<Status> Event::TryGet() const {
  std::lock_guard lock(mutex_);
  return status_;
}

Status Event::Wait() const {
  UniqueLock lock(mutex_);
  changed_.wait(lock, [this]() PW_REQUIRES(mutex_) { return status_.has_value(); });
  return *status_;
}

std::optional<Status> Event::WaitFor(std::chrono::nanoseconds timeout) const {
  UniqueLock lock(mutex_);
  changed_.wait_for(lock, timeout, [this]() PW_REQUIRES(mutex_) { return status_.has_value(); });
  return status_;
}

void Event::OnReady(Callback callback) {
  UniqueLock lock(mutex_);
  if (!status_) {
    callbacks_.push_back(std::move(callback));
    return;
  }
  Status status = *status_;
  lock.unlock();
  callback(status);
}

}  // namespace pathways
