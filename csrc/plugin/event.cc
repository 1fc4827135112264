#include "csrc/plugin/event.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "csrc/plugin/entry.h"
#include "csrc/plugin/error.h"

namespace pathways::plugin {
namespace {

class CallbackPool {
 public:
  void Run(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (idle_ < queue_.size() && threads_ < kMaxThreads) {
      ++threads_;
      std::thread([this] { Loop(); }).detach();
    }
    changed_.notify_one();
  }

 private:
  static constexpr size_t kMaxThreads = 32;

  void Loop() {
    pthread_setname_np(pthread_self(), "pw-callback");
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return !queue_.empty(); });
      --idle_;
      std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  size_t idle_ = 0;                          // guarded by mutex_
  size_t threads_ = 0;                       // guarded by mutex_
};

}  // namespace

void RunOnPool(std::function<void()> work) {
  static CallbackPool* const pool = new CallbackPool;  // leaked: its threads may outlive static destructors
  pool->Run(std::move(work));
}

Status Event_Destroy(PJRT_Event_Destroy_Args* args) {
  delete args->event;
  return OkStatus();
}

Status Event_IsReady(PJRT_Event_IsReady_Args* args) {
  args->is_ready = args->event->event->IsReady();
  return OkStatus();
}

Status Event_Error(PJRT_Event_Error_Args* args) {
  std::optional<Status> status = args->event->event->TryGet();
  if (!status) {
    return FailedPrecondition("PJRT_Event_Error was called before the event was ready; call PJRT_Event_Await");
  }
  return *status;
}

Status Event_Await(PJRT_Event_Await_Args* args) {
  // The caller may destroy the PJRT_Event from another thread once it is set.
  const std::shared_ptr<Event> event = args->event->event;
  const std::shared_ptr<client::Session> session = args->event->session;
  if (std::optional<Status> status = event->TryGet()) return *status;
  return session != nullptr ? session->waiting().Wait(event) : event->Wait();
}

Status Event_OnReady(PJRT_Event_OnReady_Args* args) {
  if (args->callback == nullptr) return InvalidArgument("PJRT_Event_OnReady: the callback is null");
  const PJRT_Event_OnReadyCallback callback = args->callback;
  void* const user_arg = args->user_arg;
  const std::shared_ptr<Event> event = args->event->event;
  if (std::optional<Status> status = event->TryGet()) {
    callback(NewError(*std::move(status)), user_arg);
    return OkStatus();
  }
  if (args->event->direct) {
    event->OnReady([callback, user_arg](const Status& status) { callback(NewError(status), user_arg); });
  } else {
    event->OnReady([callback, user_arg](const Status& status) {
      RunOnPool([callback, user_arg, status] { callback(NewError(status), user_arg); });
    });
  }
  return OkStatus();
}

Status Event_Create(PJRT_Event_Create_Args* args) {
  // Direct: the setter may free what the callbacks read as soon as PJRT_Event_Set returns.
  args->event = new PJRT_Event{Event::Make(), nullptr, true};
  return OkStatus();
}

Status Event_Set(PJRT_Event_Set_Args* args) {
  if (!args->event->event->Set(StatusFromC(args->error_code, args->error_message, args->error_message_size))) {
    return FailedPrecondition("PJRT_Event_Set: the event is already set");
  }
  return OkStatus();
}

}  // namespace pathways::plugin
