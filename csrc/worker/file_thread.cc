#include "csrc/worker/file_thread.h"

#include <pthread.h>

#include <new>
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

bool FileThread::Stop(std::optional<std::chrono::seconds> timeout) {
  std::deque<std::function<void()>> dropped;  // their destructors may take long
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    dropped.swap(shared_->queue);
  }
  shared_->changed.notify_all();
  if (!thread_.joinable()) return true;
  if (timeout) {
    UniqueLock lock(shared_->mutex);
    if (!shared_->changed.wait_for(lock, *timeout, [&]() PW_REQUIRES(shared_->mutex) { return shared_->ended; })) {
      thread_.detach();
      return false;
    }
  }
  thread_.join();
  return true;
}

void FileThread::Loop(Shared& shared) {
  UniqueLock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&]() PW_REQUIRES(shared.mutex) { return shared.stopping || !shared.queue.empty(); });
    if (shared.stopping) {
      shared.ended = true;
      shared.changed.notify_all();
      return;
    }
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
    UniqueLock lock(shared_->mutex);
    const bool free = shared_->changed.wait_for(lock, timeout, [&]() PW_REQUIRES(shared_->mutex) {
      return shared_->stopping || shared_->borrowed == 0 || shared_->borrowed + size <= limit;
    });
    if (shared_->stopping) return Cancelled("the worker stops");
    if (!free) {
      return DeadlineExceeded("expected the devices to take bytes that were read for them within " +
                              std::to_string(timeout.count()) + " s, and they took none");
    }
    shared_->borrowed += size;
  }
  return Counted(size, zeroed, &Shared::borrowed);
}

Result<std::shared_ptr<HostMemory>> FileThread::Copy(size_t size, uint64_t limit) {
  {
    std::lock_guard lock(shared_->mutex);
    if (size > limit || shared_->copied > limit - size) {
      return ResourceExhausted("expected room in host memory for a copy of " + std::to_string(size) + " bytes, got " +
                               std::to_string(shared_->copied) + " in use by what is being saved, of " +
                               std::to_string(limit) + "; save less at once, or wait for earlier saves first");
    }
    shared_->copied += size;
  }
  return Counted(size, false, &Shared::copied);
}

Result<std::shared_ptr<HostMemory>> FileThread::Counted(size_t size, bool zeroed, uint64_t Shared::* account) {
  const auto give_back = [shared = shared_, size, account] {
    {
      std::lock_guard lock(shared->mutex);
      (*shared).*account -= size;
    }
    shared->changed.notify_all();
  };
  try {
    auto* const memory = new HostMemory(zeroed ? HostMemory::Zeroed(size) : HostMemory(size));
    return std::shared_ptr<HostMemory>(memory, [give_back](HostMemory* returned) {
      delete returned;
      give_back();
    });
  } catch (const std::bad_alloc&) {
    give_back();
    return ResourceExhausted("no host memory for " + std::to_string(size) + " bytes");
  }
}

}  // namespace pathways::worker
