#include "csrc/base/host_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace pathways {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Below it the rounding up would weigh more than the faults.
constexpr size_t kHugeFrom = size_t{4} << 20;

}  // namespace

HostMemory::HostMemory(size_t size) : size_(size) {
  if (size == 0) return;
  if (size < kHugeFrom) {
    bytes_.reset(static_cast<char*>(std::malloc(size)));
  } else {
    const size_t rounded = (size + kHugePage - 1) & ~(kHugePage - 1);
    if (rounded >= size) bytes_.reset(static_cast<char*>(std::aligned_alloc(kHugePage, rounded)));
    // Only advice: without huge pages it is slower and nothing else.
    if (bytes_ != nullptr) (void)::madvise(bytes_.get(), rounded, MADV_HUGEPAGE);
  }
  if (bytes_ == nullptr) throw std::bad_alloc();
}

HostMemory::HostMemory(const void* bytes, size_t size) : HostMemory(size) {
  if (size > 0) std::memcpy(bytes_.get(), bytes, size);
}

HostMemory HostMemory::Zeroed(size_t size) {
  HostMemory memory(size);
  if (size > 0) std::memset(memory.data(), 0, size);
  return memory;
}

}  // namespace pathways
