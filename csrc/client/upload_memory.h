// UploadMemory: copies of values that are on their way to the workers, in memory that is used again.
//
// A training loop uploads values of the same few sizes at every step. Large blocks come fresh from the kernel each
// time, which zeroes them first: a third of the time of an upload of 64 MiB.
//
// Ownership: shared; blocks that are handed out keep it alive. Threads: any. Locks: one, never held across a copy.
#ifndef PTPATHWAYS_CLIENT_UPLOAD_MEMORY_H_
#define PTPATHWAYS_CLIENT_UPLOAD_MEMORY_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "csrc/base/host_memory.h"
#include "csrc/base/thread_annotations.h"

namespace pathways::client {

class UploadMemory : public std::enable_shared_from_this<UploadMemory> {
 public:
  // What is kept for the next upload of the same size, at most; the longest unused goes first.
  static constexpr size_t kMaxKeptBytes = size_t{128} << 20;

  std::shared_ptr<HostMemory> Copy(const void* bytes, size_t size);
  size_t kept_bytes() const;

 private:
  HostMemory Take(size_t size);
  void GiveBack(HostMemory block);

  mutable std::mutex mutex_;
  std::deque<HostMemory> kept_ PW_GUARDED_BY(mutex_);
  size_t kept_bytes_ PW_GUARDED_BY(mutex_) = 0;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_UPLOAD_MEMORY_H_
