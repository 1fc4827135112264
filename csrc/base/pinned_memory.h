// PinnedMemory: host memory that devices copy to directly, kept for the next copy.
//
// A GPU copies to and from ordinary memory through a small buffer of its driver's, on a thread of the host: at 6 GB/s
// where pinned memory gets 40 (an H200 on PCIe 5). Pinning costs as much as a copy, so that memory is used again.
//
// Ownership: what Take gives returns to the pool with its last reference, also after the pool is gone.
// Threads:   any. Locks: one, not held while memory is pinned or let go.
#ifndef PTPATHWAYS_BASE_PINNED_MEMORY_H_
#define PTPATHWAYS_BASE_PINNED_MEMORY_H_

#include <cstddef>
#include <memory>

namespace pathways {

// Tells a device's driver of memory of this process.
class Pinner {
 public:
  virtual ~Pinner() = default;
  // Whether it worked; where it did not, copies take longer and nothing else.
  virtual bool Pin(void* data, size_t size) = 0;
  // Of what Pin took. No copy may be under way.
  virtual void Unpin(void* data) = 0;
};

struct PinnedMemoryOptions {
  size_t smallest = size_t{256} << 10;  // smaller requests get plain memory
  size_t kept = size_t{512} << 20;      // bytes that wait for their next use
  size_t most = size_t{4} << 30;        // bytes pinned at a time, beyond which requests get plain memory
};

class PinnedMemory {
 public:
  // Without a pinner all memory is plain.
  explicit PinnedMemory(std::shared_ptr<Pinner> pinner, PinnedMemoryOptions options = {});
  // At least `size` bytes, not initialised. Throws std::bad_alloc, as containers do.
  std::shared_ptr<char> Take(size_t size);
  // Bytes pinned now, in use or waiting.
  size_t pinned() const;

 private:
  struct Pool;
  std::shared_ptr<Pool> pool_;
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_PINNED_MEMORY_H_
