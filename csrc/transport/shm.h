// Shared memory for bulk bytes between processes of one machine: the sender owns and reuses segments, receivers map
// them once by name, and only descriptors (name, offset, size) travel.
//
// Ownership: a SegmentPool owns its segments: it creates, reuses and finally unlinks them, and holds a file lock on
//            each, so that anybody can tell a live segment from a dead process's leftover. A receiver owns its mapping,
//            which outlives the sender's unlink. Files: /dev/shm/ptpathways-<cluster>-<owner>-<n>, mode 0600.
// Threads:   both classes may be used from any thread; each has one lock, never held across a callback or a copy.
// Trust:     descriptors arrive in messages, so names and bounds are checked before anything is mapped or read. The
//            writer is a process of the same user; that it does not shrink a file in use is trusted.
#ifndef PTPATHWAYS_TRANSPORT_SHM_H_
#define PTPATHWAYS_TRANSPORT_SHM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/pinned_memory.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"

namespace pathways::transport {

inline constexpr std::string_view kSegmentPrefix = "/ptpathways-";

// Equal for two processes exactly when one can map the other's segments: same boot, same /dev/shm, same user.
// Empty when there is no usable /dev/shm. PTPATHWAYS_MACHINE in the environment keeps processes of one machine apart:
// they share memory only with those that have the same text there.
std::string MachineToken();

// Removes every segment of `cluster`, in use or not; for tearing a cluster down. Returns how many.
Result<int> CleanUp(std::string_view cluster);
// The same of one owner's, who is known to be gone.
Result<int> CleanUpOwner(std::string_view cluster, uint64_t owner);
// Removes the segments whose owner is gone (its file lock is free), of any cluster. Returns how many.
Result<int> CleanUpDead();

// OK for letters, digits, '.', '_' and '-', 1 to 64 of them.
Status CheckClusterName(std::string_view cluster);

// A chunk of pool memory, between TryAcquire and Release.
struct ShmChunk {
  std::string_view segment;  // name; valid as long as the pool
  uint64_t offset = 0;       // within the segment
  std::byte* data = nullptr;
  size_t size = 0;  // the pool's chunk size
};

// The <owner> of a segment's name; 0 when it is none.
uint64_t SegmentOwner(std::string_view name);

struct SegmentPoolOptions {
  std::string cluster = "default";
  uint64_t owner = 0;  // the process's session in the cluster; 0: its process id
  size_t chunk_bytes = 2 << 20;
  size_t segment_bytes = 8 << 20;  // memory is added in steps of this size (at least one chunk)
  size_t total_bytes = 256 << 20;
};

class SegmentPool {
 public:
  explicit SegmentPool(SegmentPoolOptions options);
  ~SegmentPool();  // unlinks and unmaps; chunks must no longer be written
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  // Never waits. The most recently released chunk comes first, because its pages are warm in the caches.
  // RESOURCE_EXHAUSTED: all chunks are in use; retry after a Release (see OnRelease).
  // UNAVAILABLE: there is no shared memory at all (/dev/shm absent or full); send bytes in socket frames instead. The
  // next attempt to get some is made a second later.
  Result<ShmChunk> TryAcquire();
  void Release(const ShmChunk& chunk);
  // `callback` runs after each Release that follows a RESOURCE_EXHAUSTED, on the releasing thread, without the lock.
  // One callback per pool; set it before use.
  void OnRelease(std::function<void()> callback);

  size_t chunk_bytes() const { return options_.chunk_bytes; }
  size_t chunks_in_use() const;
  size_t bytes_allocated() const;

 private:
  struct Segment;
  Status Grow() PW_REQUIRES(mutex_);
  Status CreateSegment(size_t size, Segment* segment);

  SegmentPoolOptions options_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Segment>> segments_ PW_GUARDED_BY(mutex_);
  std::vector<ShmChunk> free_ PW_GUARDED_BY(mutex_);  // used as a stack
  size_t in_use_ PW_GUARDED_BY(mutex_) = 0;
  size_t allocated_ PW_GUARDED_BY(mutex_) = 0;
  bool starved_ PW_GUARDED_BY(mutex_) = false;
  Status grow_error_ PW_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point grow_again_ PW_GUARDED_BY(mutex_);
  std::function<void()> on_release_;
};

// One mapped segment; unmapped with the last reference.
class SegmentMapping {
 public:
  // `pinner`: what has pinned it, or null.
  SegmentMapping(std::byte* data, size_t size, std::shared_ptr<Pinner> pinner)
      : data_(data), size_(size), pinner_(std::move(pinner)) {}
  ~SegmentMapping();
  SegmentMapping(const SegmentMapping&) = delete;
  SegmentMapping& operator=(const SegmentMapping&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_;
  size_t size_;
  std::shared_ptr<Pinner> pinner_;
};

class SegmentMap {
 public:
  // Only segments of `cluster` are mapped. With a pinner they are pinned, for devices to read.
  explicit SegmentMap(std::string cluster, std::shared_ptr<Pinner> pinner = nullptr);

  struct View {
    std::span<const std::byte> bytes;
    std::shared_ptr<const SegmentMapping> mapping;  // keeps bytes valid
  };
  // INVALID_ARGUMENT: not a segment name of this cluster, or out of the segment's bounds. NOT_FOUND: no such segment.
  Result<View> Open(std::string_view name, uint64_t offset, uint64_t size);
  // Drops the cached mapping; views in use stay valid.
  void Forget(std::string_view name);
  size_t size() const;

 private:
  Result<std::shared_ptr<const SegmentMapping>> Map(std::string_view name);

  const std::string cluster_;
  const std::shared_ptr<Pinner> pinner_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const SegmentMapping>> mappings_ PW_GUARDED_BY(mutex_);
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_SHM_H_
