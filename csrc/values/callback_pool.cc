#include "csrc/values/callback_pool.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "csrc/base/thread_annotations.h"

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
    UniqueLock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this]() PW_REQUIRES(mutex_) { return !queue_.empty(); });
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
  std::deque<std::function<void()>> queue_ PW_GUARDED_BY(mutex_);
  size_t idle_ PW_GUARDED_BY(mutex_) = 0;
  size_t threads_ PW_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void RunOnPool(std::function<void()> work) {
  static CallbackPool* const pool = new CallbackPool;  // leaked: its threads may outlive static destructors
  pool->Run(std::move(work));
}

}  // namespace pathways::values
