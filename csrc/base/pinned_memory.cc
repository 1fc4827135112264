#include "csrc/base/pinned_memory.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "csrc/base/host_memory.h"
#include "csrc/base/thread_annotations.h"

namespace pathways {
namespace {

// Blocks come in steps, so that values of nearly equal sizes share them.
constexpr size_t kStep = size_t{1} << 20;

size_t CapacityFor(size_t size) { return (size + kStep - 1) / kStep * kStep; }

}  // namespace

struct PinnedMemory::Pool {
  Pool(std::shared_ptr<Pinner> pinner, PinnedMemoryOptions options) : pinner(std::move(pinner)), options(options) {}
  ~Pool() {
    for (HostMemory& block : waiting) pinner->Unpin(block.data());
  }

  // Takes a block that waits and is not much larger than it must be.
  bool TakeWaiting(size_t size, HostMemory* block) {
    std::lock_guard lock(mutex);
    auto best = waiting.end();
    for (auto at = waiting.begin(); at != waiting.end(); ++at) {
      if (at->size() < size || at->size() > 2 * CapacityFor(size)) continue;
      if (best == waiting.end() || at->size() < best->size()) best = at;
    }
    if (best == waiting.end()) return false;
    *block = std::move(*best);
    waiting.erase(best);
    waiting_bytes -= block->size();
    return true;
  }

  // Whether so many more bytes may be pinned; they count from now on.
  bool Reserve(size_t bytes) {
    std::lock_guard lock(mutex);
    if (bytes > options.most || pinned > options.most - bytes) return false;
    pinned += bytes;
    return true;
  }

  // Whether a new block is pinned now.
  bool Pin(HostMemory& block) {
    if (!Reserve(block.size())) {
      Trim(0);  // blocks of other sizes may be all that is in the way
      if (!Reserve(block.size())) return false;
    }
    if (pinner->Pin(block.data(), block.size())) return true;
    std::lock_guard lock(mutex);
    pinned -= block.size();
    return false;
  }

  // Lets the blocks that have waited longest go, until so many bytes are left.
  void Trim(size_t left) {
    std::list<HostMemory> going;
    {
      std::lock_guard lock(mutex);
      while (waiting_bytes > left) {
        waiting_bytes -= waiting.front().size();
        pinned -= waiting.front().size();
        going.splice(going.end(), waiting, waiting.begin());
      }
    }
    for (HostMemory& block : going) pinner->Unpin(block.data());
  }

  void GiveBack(HostMemory block) {
    {
      std::lock_guard lock(mutex);
      waiting_bytes += block.size();
      waiting.push_back(std::move(block));
    }
    Trim(options.kept);
  }

  const std::shared_ptr<Pinner> pinner;
  const PinnedMemoryOptions options;
  std::mutex mutex;
  std::list<HostMemory> waiting PW_GUARDED_BY(mutex);  // the longest first
  size_t waiting_bytes PW_GUARDED_BY(mutex) = 0;
  size_t pinned PW_GUARDED_BY(mutex) = 0;
};

PinnedMemory::PinnedMemory(std::shared_ptr<Pinner> pinner, PinnedMemoryOptions options)
    : pool_(pinner == nullptr ? nullptr : std::make_shared<Pool>(std::move(pinner), options)) {}

std::shared_ptr<char> PinnedMemory::Take(size_t size) {
  const bool wanted = pool_ != nullptr && size >= pool_->options.smallest;
  auto block = std::make_shared<HostMemory>();
  if (!wanted || !pool_->TakeWaiting(size, block.get())) {
    *block = HostMemory(wanted ? CapacityFor(size) : size);
    if (!wanted || !pool_->Pin(*block)) return std::shared_ptr<char>(block, block->data());
  }
  return std::shared_ptr<char>(block->data(), [pool = pool_, block](char*) { pool->GiveBack(std::move(*block)); });
}

size_t PinnedMemory::pinned() const {
  if (pool_ == nullptr) return 0;
  std::lock_guard lock(pool_->mutex);
  return pool_->pinned;
}

}  // namespace pathways
