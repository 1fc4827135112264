#include "csrc/values/callback_pool.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace pathways::values {
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

}  // namespace pathways::values
