// SharedRing: bytes from one process to another that was forked from it, or from which it was forked, through memory
// that both have. What was written stays there when the writer is killed.
//
// The memory has no name: nobody but a process that inherits it can open it, and nothing of it is left when both are
// gone. The writer never waits without a bound: a reader that lets the ring fill up is dropped.
//
// Ownership: owns the mapping and a descriptor; each process has a share of both. Threads: one writes, one reads; the
// flags may be read by any. Locks: none; `written` and `read` are counters of their own side, published with release.
#ifndef PTPATHWAYS_BASE_SHARED_RING_H_
#define PTPATHWAYS_BASE_SHARED_RING_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways {

class SharedRing {
 public:
  // `patience`: how long one Write may wait for room in all, for each `capacity` bytes that it begins.
  static Result<std::unique_ptr<SharedRing>> Make(size_t capacity, std::chrono::milliseconds patience);
  ~SharedRing();
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  // --- the writer's
  // One record, of any size. It counts as written when all of it is. False: the reader has left, or is dropped because
  // it did not make room in time; then nothing is ever written again.
  bool Write(std::span<const std::string_view> pieces);
  // The reader sleeps until so much is there, or until somebody calls this.
  void Wake();

  // --- the reader's
  // The next whole record, in place of `record`. False: there is none yet.
  bool Read(std::string* record);
  // Becomes readable when there is something to read, if PrepareToSleep was called and found nothing.
  int wake_fd() const { return wake_fd_; }
  // True: nothing can be read now, and wake_fd() will tell.
  bool PrepareToSleep();
  void Woke();
  // It reads no more.
  void Leave() { shared_->reader_left.store(1, std::memory_order_release); }

  // --- both
  bool dropped() const { return shared_->dropped.load(std::memory_order_acquire) != 0; }
  bool left() const { return shared_->reader_left.load(std::memory_order_acquire) != 0; }

 private:
  struct Shared {
    alignas(64) std::atomic<uint64_t> written;  // bytes so far, the writer's
    alignas(64) std::atomic<uint64_t> read;     // bytes so far, the reader's
    std::atomic<uint32_t> sleeping;
    std::atomic<uint32_t> reader_left;
    alignas(64) std::atomic<uint32_t> dropped;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

  SharedRing(Shared* shared, size_t capacity, std::chrono::milliseconds patience, int wake_fd)
      : shared_(shared),
        bytes_(reinterpret_cast<char*>(shared + 1)),
        capacity_(capacity),
        patience_(patience),
        wake_fd_(wake_fd) {}
  bool Append(std::string_view bytes);
  bool AwaitRoom();
  void CopyIn(std::string_view bytes);
  size_t CopyOut(char* to, size_t most);

  Shared* const shared_;
  char* const bytes_;
  const size_t capacity_;
  const std::chrono::milliseconds patience_;
  const int wake_fd_;
  // The writer's: bytes so far, with those that are not published; how long the record may still wait for room.
  uint64_t writing_ = 0;
  std::chrono::steady_clock::duration left_to_wait_{};
  // The reader's: how much there is of the record that is being read.
  std::string partial_;
  size_t wanted_ = 0;  // 0: its length is not known yet
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_SHARED_RING_H_
