#include "csrc/worker/found_shard.h"

namespace pathways::worker {

Result<FoundShard> FindShard(const HostContext& context, uint64_t id, uint32_t shard) {
  auto object = context.store().Find(id);
  if (object == nullptr) {
    return context.Here(
        NotFound("buffer " + std::to_string(id) + " is not on this host: it was donated to a run or freed"));
  }
  if (!object->error.ok()) return object->error;
  const size_t position = object->PositionOf(shard);
  if (position == object->shards.size()) {
    return context.Here(InvalidArgument("buffer has no shard " + std::to_string(shard) + " on this host"));
  }
  if (const auto& part = object->At(position); !part.buffer.valid() && part.staged == nullptr) {
    return context.Here(FailedPrecondition("shard " + std::to_string(shard) + " of the buffer has not been put yet"));
  }
  return FoundShard{std::move(object), position};
}

}  // namespace pathways::worker
