#include "csrc/store/object_store.h"

#include "csrc/wire/bodies.h"

namespace pathways::store {
namespace {

uint32_t Owner(uint64_t id) { return static_cast<uint32_t>(wire::ClientOf(id)); }

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is moved from; clang-tidy takes try_emplace for a reader.
Status ObjectStore::Insert(uint64_t id, std::shared_ptr<Object> object) {
  auto [it, fresh] = objects_.try_emplace(id, std::move(object));
  if (!fresh) {
    return Status(Code::kAlreadyExists, "expected a new buffer id, got " + std::to_string(id) + ", which is in use");
  }
  for (const Object::Shard& shard : it->second->shards) account_.Add(shard.device, Owner(id), shard.bytes);
  return OkStatus();
}

void ObjectStore::AccountShard(uint64_t id, const Object::Shard& shard) {
  account_.Add(shard.device, Owner(id), shard.bytes);
}

std::shared_ptr<Object> ObjectStore::Find(uint64_t id) const {
  auto it = objects_.find(id);
  return it == objects_.end() ? nullptr : it->second;
}

void ObjectStore::Remove(uint64_t id) {
  auto node = objects_.extract(id);
  if (!node.empty()) Unaccount(id, *node.mapped());
}

size_t ObjectStore::RemoveClient(uint32_t client) {
  size_t removed = 0;
  for (auto it = objects_.begin(); it != objects_.end();) {
    if (Owner(it->first) == client) {
      Unaccount(it->first, *it->second);
      it = objects_.erase(it);
      ++removed;
    } else {
      ++it;
    }
  }
  return removed;
}

void ObjectStore::MarkSpilled(uint64_t id, Object& object) {
  if (object.spilled) return;
  Unaccount(id, object);
  object.spilled = true;
  for (const Object::Shard& shard : object.shards) staged_bytes_ += shard.bytes;
}

void ObjectStore::MarkRestored(uint64_t id, Object& object) {
  if (!object.spilled) return;
  Unaccount(id, object);
  object.spilled = false;
  for (const Object::Shard& shard : object.shards) account_.Add(shard.device, Owner(id), shard.bytes);
}

void ObjectStore::Unaccount(uint64_t id, const Object& object) {
  if (object.spilled) {
    for (const Object::Shard& shard : object.shards) staged_bytes_ -= shard.bytes;
    return;
  }
  for (const Object::Shard& shard : object.shards) account_.Remove(shard.device, Owner(id), shard.bytes);
}

}  // namespace pathways::store
