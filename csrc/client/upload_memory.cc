#include "csrc/client/upload_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pathways::client {
namespace {

// The allocator itself keeps smaller blocks.
constexpr size_t kKeptFrom = size_t{1} << 20;

}  // namespace

std::shared_ptr<HostMemory> UploadMemory::Copy(const void* bytes, size_t size) {
  if (size < kKeptFrom || size > kMaxKeptBytes) return std::make_shared<HostMemory>(bytes, size);
  std::shared_ptr<HostMemory> block(new HostMemory(Take(size)), [self = shared_from_this()](HostMemory* used) {
    self->GiveBack(std::move(*used));
    delete used;
  });
  std::memcpy(block->data(), bytes, size);
  return block;
}

size_t UploadMemory::kept_bytes() const {
  std::lock_guard lock(mutex_);
  return kept_bytes_;
}

HostMemory UploadMemory::Take(size_t size) {
  {
    std::lock_guard lock(mutex_);
    const auto at =
        std::find_if(kept_.rbegin(), kept_.rend(), [size](const HostMemory& block) { return block.size() == size; });
    if (at != kept_.rend()) {
      HostMemory block = std::move(*at);
      kept_.erase(std::next(at).base());
      kept_bytes_ -= size;
      return block;
    }
  }
  return HostMemory(size);
}

void UploadMemory::GiveBack(HostMemory block) {
  std::deque<HostMemory> dropped;  // freed without the lock
  std::lock_guard lock(mutex_);
  kept_bytes_ += block.size();
  kept_.push_back(std::move(block));
  while (kept_bytes_ > kMaxKeptBytes) {
    kept_bytes_ -= kept_.front().size();
    dropped.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
}

}  // namespace pathways::client
