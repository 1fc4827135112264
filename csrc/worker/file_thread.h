// FileThread: does what waits for disks, in order, on a thread of its own.
//
// Ownership: owned by the engine. Threads: Submit from any thread; jobs run on "pw-files". Locks: mutex_ guards all.
#ifndef PTPATHWAYS_WORKER_FILE_THREAD_H_
#define PTPATHWAYS_WORKER_FILE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "csrc/base/host_memory.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"

namespace pathways::worker {

class FileThread {
 public:
  FileThread();
  ~FileThread() { Stop(); }
  // Ignored after Stop.
  void Submit(std::function<void()> job);
  // Drops what has not begun and waits for what has; false when that takes longer. The thread is left alone then, and
  // what its job uses must stay for ever.
  bool Stop(std::optional<std::chrono::seconds> timeout = {});

  // Host memory for bytes that were read and are on their way to a device. Waits while those that are out are more than
  // `limit` bytes. Of a job. DEADLINE_EXCEEDED when nobody took any for `timeout`.
  Result<std::shared_ptr<HostMemory>> Borrow(size_t size, bool zeroed, uint64_t limit = uint64_t{512} << 20,
                                             std::chrono::seconds timeout = std::chrono::seconds(120));
  // Host memory for a copy of what is to be written. From any thread; does not wait: RESOURCE_EXHAUSTED when the copies
  // that are out and this one are more than `limit` bytes.
  Result<std::shared_ptr<HostMemory>> Copy(size_t size, uint64_t limit);

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue PW_GUARDED_BY(mutex);
    uint64_t borrowed PW_GUARDED_BY(mutex) = 0;
    uint64_t copied PW_GUARDED_BY(mutex) = 0;
    bool stopping PW_GUARDED_BY(mutex) = false;
    bool ended PW_GUARDED_BY(mutex) = false;
  };
  // Memory that is counted in `account`, where it is entered, until it is gone.
  Result<std::shared_ptr<HostMemory>> Counted(size_t size, bool zeroed, uint64_t Shared::* account);
  static void Loop(Shared& shared);

  // What was borrowed may come back after this object is gone.
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread thread_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_FILE_THREAD_H_
