#include "csrc/worker/spills.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "csrc/worker/staging.h"

namespace pathways::worker {
namespace {

// How soon to look again whether a buffer that is being read has been read.
constexpr std::chrono::milliseconds kLookAgain{5};

}  // namespace

struct Spills::Moving {
  uint64_t id;
  std::shared_ptr<store::Object> object;
  std::vector<std::shared_ptr<HostMemory>> bytes;  // by shard
  std::atomic<size_t> left;
  std::atomic<bool> failed{false};
};

void Spills::Spill(const wire::Spill& spill) {
  wire::Spill done;
  for (const uint64_t id : spill.buffers) {
    std::shared_ptr<store::Object> object = context_.store().Find(id);
    if (object == nullptr || object->spilled) {
      done.buffers.push_back(id);
      continue;
    }
    const bool movable = object->error.ok() && object->aliases.empty() &&
                         std::all_of(object->shards.begin(), object->shards.end(),
                                     [](const store::Object::Shard& shard) { return shard.buffer.valid(); });
    if (!movable) {  // a failure holds nothing, and memory that two names share is counted twice
      context_.store().MarkSpilled(id, *object);
      done.buffers.push_back(id);
      continue;
    }
    auto moving = std::make_shared<Moving>();
    moving->id = id;
    moving->left = object->shards.size() + 1;
    moving->object = std::move(object);
    const auto one_left = [this, moving] {
      if (moving->left.fetch_sub(1) == 1) context_.engine().Post([this, moving] { Finish(moving); });
    };
    for (const store::Object::Shard& shard : moving->object->shards) {
      const size_t size = static_cast<size_t>(shard.buffer.type().ByteSize());
      moving->bytes.push_back(std::make_shared<HostMemory>(size));
      const auto copy = [moving, one_left, size, &shard, to = moving->bytes.back()->data()](const Status& there) {
        const auto copied = [moving, one_left](const Status& status) {
          if (!status.ok()) moving->failed = true;
          one_left();
        };
        return there.ok() ? shard.buffer.ToHost(to, size, copied) : copied(there);
      };
      if (context_.hands_errors_on() || !shard.buffer.arrives()) {
        copy(OkStatus());
      } else {  // the copy may not hear of the transfer's error
        const Result<pjrt::EventHandle> ready = shard.buffer.ReadyEvent();
        ready.ok() ? ready->OnReady(copy) : copy(ready.status());
      }
    }
    one_left();
  }
  if (!done.buffers.empty()) context_.Send(done);
}

void Spills::Finish(const std::shared_ptr<Moving>& moving) {
  const bool still_here = context_.store().Find(moving->id) == moving->object;
  if (still_here && !moving->object->spilled) {
    std::vector<store::Object::Shard>& shards = moving->object->shards;
    // Bytes may be read in place by a transfer; it ends by itself.
    if (std::any_of(shards.begin(), shards.end(), [](const auto& shard) { return shard.pins.load() > 0; })) {
      context_.engine().AddTimer(kLookAgain, {}, [this, moving] { Finish(moving); });
      return;
    }
    // The store and we hold it. Anybody else shares its memory under another name.
    const bool shared = moving->object.use_count() > 2;
    if (!moving->failed && !shared && moving->object->error.ok()) {
      for (size_t p = 0; p < shards.size(); ++p) {
        shards[p].staged = std::move(moving->bytes[p]);
        shards[p].staged_type = shards[p].buffer.shared_type();
        shards[p].buffer.Reset();
      }
    }
    context_.store().MarkSpilled(moving->id, *moving->object);
    context_.Count();
  }
  context_.Send(wire::Spill{{moving->id}});
}

void Spills::Restore(const wire::Restore& restore) {
  for (const uint64_t id : restore.buffers) {
    const std::shared_ptr<store::Object> object = context_.store().Find(id);
    if (object == nullptr || !object->spilled) continue;
    context_.store().MarkRestored(id, *object);
    for (store::Object::Shard& shard : object->shards) {
      if (shard.staged == nullptr) continue;
      Result<pjrt::Buffer> buffer =
          StagedToDevice(*context_.client(), data_, std::move(shard.staged), *shard.staged_type, shard.device);
      shard.staged_type.reset();
      if (buffer.ok()) {
        shard.buffer = *std::move(buffer);
      } else if (object->error.ok()) {
        object->error = context_.Here(buffer.status().WithPrefix("restoring a tensor from host memory"));
      }
    }
  }
}

}  // namespace pathways::worker
