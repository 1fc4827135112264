// HostMemory: room in host memory for the bytes of one value.
//
// Ownership: owns its bytes; movable. Threads: none. Locks: none.
//
// Unlike a string or a vector it does not write bytes that are about to be overwritten, and it asks the kernel for huge
// pages: a fresh 64 MiB is 32 page faults then instead of 16,384, which took three quarters of an upload's time.
#ifndef PTPATHWAYS_BASE_HOST_MEMORY_H_
#define PTPATHWAYS_BASE_HOST_MEMORY_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

namespace pathways {

class HostMemory {
 public:
  HostMemory() = default;
  // Not initialised. Throws std::bad_alloc, as containers do.
  explicit HostMemory(size_t size);
  HostMemory(const void* bytes, size_t size);  // a copy
  static HostMemory Zeroed(size_t size);
  HostMemory(HostMemory&& other) noexcept : bytes_(std::move(other.bytes_)), size_(std::exchange(other.size_, 0)) {}
  HostMemory& operator=(HostMemory&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  char* data() { return bytes_.get(); }
  const char* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char, Free> bytes_;
  size_t size_ = 0;
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_HOST_MEMORY_H_
