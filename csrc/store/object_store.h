// ObjectStore: the logical buffers whose shards lie on this host (paper 4.6).
//
// One entry and one reference count (the client's handle) per logical buffer, whatever its number of shards. The
// client and program that own an entry are in its id's top bits, so all of a lost client's can be collected.
//
// Ownership: entries are shared, so that a fetch in flight keeps a freed buffer's memory until it is done.
// Threads:   the store belongs to the engine's thread. Object::Shard::pins may be changed from any thread.
#ifndef PTPATHWAYS_STORE_OBJECT_STORE_H_
#define PTPATHWAYS_STORE_OBJECT_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/host_memory.h"
#include "csrc/base/status.h"
#include "csrc/pjrt/buffer.h"
#include "csrc/store/memory_account.h"

namespace pathways::store {

// The run that makes an object's value, for those that depend on it. Belongs to the engine's thread, which sets it when
// the run has ended.
struct Origin {
  bool ended = false;
  Status cause = OkStatus();                      // not OK: the run failed; its root cause
  std::string reported;                           // what the plugin said then, and says to those that depend on it
  std::vector<std::function<void()>> dependents;  // called when it ends
};

// What this host holds of a logical buffer.
struct Object {
  struct Shard {
    pjrt::Buffer buffer;
    size_t device = 0;    // local index
    int64_t bytes = 0;    // as accounted
    uint32_t number = 0;  // index in the logical buffer
    // Reads of this memory in flight outside the plugin's knowledge; a pinned shard is not donated.
    std::atomic<int> pins{0};
    // While its object is spilled: the contents, and `buffer` is empty. Null where the memory could not be let go.
    std::shared_ptr<const HostMemory> staged;
    std::shared_ptr<const TensorType> staged_type;
  };
  // Room for so many shards, numbered from 0 until told otherwise.
  explicit Object(size_t shard_count) : shards(shard_count) {
    for (size_t i = 0; i < shard_count; ++i) shards[i].number = static_cast<uint32_t>(i);
  }
  // A shard, or the shard of another object that stands for it.
  Shard& At(size_t position) {
    if (aliases.empty() || aliases[position].of == nullptr) return shards[position];
    return aliases[position].of->At(aliases[position].position);
  }
  // The position of shard `number`, or shards.size() when it is not on this host.
  size_t PositionOf(uint64_t number) const {
    if (number < shards.size() && shards[number].number == number) return number;
    size_t position = 0;
    while (position < shards.size() && shards[position].number != number) ++position;
    return position;
  }

  // Of the run that makes a shard; null: no run of this host does.
  const std::shared_ptr<Origin>& OriginOf(size_t position) const {
    if (aliases.empty() || aliases[position].of == nullptr) return origin;
    return aliases[position].of->OriginOf(aliases[position].position);
  }

  std::vector<Shard> shards;  // never grows: other threads may hold pins
  struct Alias {
    std::shared_ptr<Object> of;
    size_t position = 0;
  };
  // Empty, or one per shard: where its memory really is, when that is another object's.
  std::vector<Alias> aliases;
  // Not OK: there is no value and never will be; this is the root cause.
  Status error;
  std::shared_ptr<Origin> origin;  // null: no run of this host makes it
  // Counted as host memory, not as its devices' (ObjectStore::MarkSpilled).
  bool spilled = false;
};

class ObjectStore {
 public:
  explicit ObjectStore(std::vector<int64_t> device_limits) : account_(std::move(device_limits)) {}

  // ALREADY_EXISTS for an id in use: an id is minted once.
  Status Insert(uint64_t id, std::shared_ptr<Object> object);
  // A shard of an object that is already in has been filled.
  void AccountShard(uint64_t id, const Object::Shard& shard);
  // nullptr when there is none.
  std::shared_ptr<Object> Find(uint64_t id) const;
  // The client dropped its handle, or a run took the buffer. Unknown ids are fine: a donated buffer's handle is
  // dropped later.
  void Remove(uint64_t id);
  // Drops everything of a client; how many there were.
  size_t RemoveClient(uint32_t client);

  // Moves the account of an object that is in from its devices to the host, and back.
  void MarkSpilled(uint64_t id, Object& object);
  void MarkRestored(uint64_t id, Object& object);
  // Bytes of spilled objects.
  int64_t staged_bytes() const { return staged_bytes_; }

  MemoryAccount& account() { return account_; }
  const MemoryAccount& account() const { return account_; }
  size_t size() const { return objects_.size(); }

 private:
  void Unaccount(uint64_t id, const Object& object);

  std::unordered_map<uint64_t, std::shared_ptr<Object>> objects_;
  MemoryAccount account_;
  int64_t staged_bytes_ = 0;
};

}  // namespace pathways::store

#endif  // PTPATHWAYS_STORE_OBJECT_STORE_H_
