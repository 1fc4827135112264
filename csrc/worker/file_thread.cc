#include "csrc/worker/file_thread.h"

#include <pthread.h>

#include <string>
#include <utility>

namespace pathways::worker {

FileThread::FileThread()
    : thread_([shared = shared_] {
        pthread_setname_np(pthread_self(), "pw-files");
        Loop(*shared);
      }) {}

void FileThread::Submit(std::function<void()> job) {
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->stopping) return;
    shared_->queue.push_back(std::move(job));
  }
  shared_->changed.notify_all();
}

void FileThread::Stop() {
  std::deque<std::function<void()>> dropped;  // their destructors may take long
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    dropped.swap(shared_->queue);
  }
  shared_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FileThread::Loop(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&] { return shared.stopping || !shared.queue.empty(); });
    if (shared.stopping) return;
    std::function<void()> job = std::move(shared.queue.front());
    shared.queue.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

Result<std::shared_ptr<HostMemory>> FileThread::Borrow(size_t size, bool zeroed, uint64_t limit,
                                                       std::chrono::seconds timeout) {
  {
    std::unique_lock lock(shared_->mutex);
    const bool free = shared_->changed.wait_for(lock, timeout, [&] {
      return shared_->stopping || shared_->borrowed == 0 || shared_->borrowed + size <= limit;
    });
    if (shared_->stopping) return Cancelled("the worker stops");
    if (!free) {
      return DeadlineExceeded("expected the devices to take bytes that were read for them within " +
                              std::to_string(timeout.count()) + " s, and they took none");
    }
    shared_->borrowed += size;
  }
  auto* const memory = new HostMemory(zeroed ? HostMemory::Zeroed(size) : HostMemory(size));
  return std::shared_ptr<HostMemory>(memory, [shared = shared_](HostMemory* returned) {
    const size_t bytes = returned->size();
    delete returned;
    {
      std::lock_guard lock(shared->mutex);
      shared->borrowed -= bytes;
    }
    shared->changed.notify_all();
  });
}

}  // namespace pathways::worker
