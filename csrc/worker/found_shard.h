// FoundShard: a shard of a buffer that somebody wants to read.
//
// Ownership: shares the object. Threads: FindShard: the engine's.
#ifndef PTPATHWAYS_WORKER_FOUND_SHARD_H_
#define PTPATHWAYS_WORKER_FOUND_SHARD_H_

#include <cstdint>
#include <memory>

#include "csrc/worker/host_context.h"

namespace pathways::worker {

struct FoundShard {
  std::shared_ptr<store::Object> object;
  size_t position;
  store::Object::Shard& shard() const { return object->At(position); }
};

// The error of the buffer if it has one, or why there is no such shard.
Result<FoundShard> FindShard(const HostContext& context, uint64_t id, uint32_t shard);

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_FOUND_SHARD_H_
