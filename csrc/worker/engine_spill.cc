// Engine: memory that is taken back for a while (paper 4.6). The controller names buffers to move to host memory, and
// later to put back; in between they can be read and copied, but no computation takes them.
#include <unistd.h>

#include <algorithm>
#include <unordered_set>

#include "csrc/worker/engine.h"

namespace pathways::worker {
namespace {

// How soon to look again whether a buffer that is being read has been read.
constexpr std::chrono::milliseconds kLookAgain{5};

}  // namespace

struct Engine::Spilling {
  uint64_t id;
  std::shared_ptr<store::Object> object;
  std::vector<std::shared_ptr<HostMemory>> bytes;  // by shard
  std::atomic<size_t> left;
  std::atomic<bool> failed{false};
};

int64_t Engine::StagingLimit() const {
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 10 * 9;
  if (!context_.is_cpu()) return memory / 2;
  // CPU devices take the same memory: what their limits leave over.
  int64_t devices = 0;
  for (size_t d = 0; d < context_.device_count(); ++d) devices += context_.store().account().limit(d);
  return std::max<int64_t>(memory - devices, 0) / 2;
}

void Engine::OnSpill(const wire::Spill& spill) {
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
    auto spilling = std::make_shared<Spilling>();
    spilling->id = id;
    spilling->left = object->shards.size() + 1;
    spilling->object = std::move(object);
    const auto one_left = [this, spilling] {
      if (spilling->left.fetch_sub(1) == 1) reactor_->Post([this, spilling] { FinishSpill(spilling); });
    };
    for (const store::Object::Shard& shard : spilling->object->shards) {
      const size_t size = static_cast<size_t>(shard.buffer.type().ByteSize());
      spilling->bytes.push_back(std::make_shared<HostMemory>(size));
      shard.buffer.ToHost(spilling->bytes.back()->data(), size, [spilling, one_left](const Status& status) {
        if (!status.ok()) spilling->failed = true;
        one_left();
      });
    }
    one_left();
  }
  if (!done.buffers.empty()) context_.Send(done);
}

void Engine::FinishSpill(const std::shared_ptr<Spilling>& spilling) {
  const bool still_here = context_.store().Find(spilling->id) == spilling->object;
  if (still_here && !spilling->object->spilled) {
    std::vector<store::Object::Shard>& shards = spilling->object->shards;
    // Bytes may be read in place by a transfer; it ends by itself.
    if (std::any_of(shards.begin(), shards.end(), [](const auto& shard) { return shard.pins.load() > 0; })) {
      reactor_->AddTimer(kLookAgain, {}, [this, spilling] { FinishSpill(spilling); });
      return;
    }
    // The store and we hold it. Anybody else shares its memory under another name.
    const bool shared = spilling->object.use_count() > 2;
    if (!spilling->failed && !shared && spilling->object->error.ok()) {
      for (size_t p = 0; p < shards.size(); ++p) {
        shards[p].staged = std::move(spilling->bytes[p]);
        shards[p].staged_type = shards[p].buffer.shared_type();
        shards[p].buffer.Reset();
      }
    }
    context_.store().MarkSpilled(spilling->id, *spilling->object);
    context_.Count();
  }
  context_.Send(wire::Spill{{spilling->id}});
}

void Engine::OnRestore(const wire::Restore& restore) {
  for (const uint64_t id : restore.buffers) {
    const std::shared_ptr<store::Object> object = context_.store().Find(id);
    if (object == nullptr || !object->spilled) continue;
    context_.store().MarkRestored(id, *object);
    for (store::Object::Shard& shard : object->shards) {
      if (shard.staged == nullptr) continue;
      Result<pjrt::Buffer> buffer = FromStaging(std::move(shard.staged), *shard.staged_type, shard.device);
      shard.staged_type.reset();
      if (buffer.ok()) {
        shard.buffer = *std::move(buffer);
      } else if (object->error.ok()) {
        object->error = context_.Here(buffer.status().WithPrefix("restoring a tensor from host memory"));
      }
    }
  }
}

Result<pjrt::Buffer> Engine::FromStaging(std::shared_ptr<const HostMemory> bytes, const TensorType& type,
                                         size_t device) {
  if (bytes->size() == 0) return context_.client()->BufferFromHost("", type, static_cast<int>(device));
  PW_ASSIGN_OR_RETURN(auto unique, context_.client()->CreateAsyncBuffer(type, static_cast<int>(device)));
  std::shared_ptr<pjrt::AsyncBuffer> async = std::move(unique);
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, async->TakeBuffer());
  data_->Post([this, async, bytes = std::move(bytes)] {
    async->Transfer(bytes->data(), bytes->size(), 0, true, [this, async, bytes](const Status&) {
      data_->Post([async] {});  // let go outside the callback, which the manager waits for
    });
  });
  return buffer;
}

Status Engine::NeverFits(const wire::Run& run, const Function& function) const {
  int64_t made = 0;
  for (const TensorType& type : function.outputs) made += type.ByteSize();
  for (const uint32_t shard : function.local) {
    PW_ASSIGN_OR_RETURN(size_t device, context_.LocalDevice(run.devices[shard]));
    std::unordered_set<uint64_t> counted;
    int64_t arguments = 0, given = 0;
    for (size_t position = 0; position < run.arguments.size(); ++position) {
      const uint64_t argument = run.arguments[position];
      const size_t row = (argument & ~wire::kAssembledBit) * run.devices.size() * 2;
      const bool assembled = (argument & wire::kAssembledBit) != 0;
      if (assembled && run.assembled.size() < row + 2 * run.devices.size()) continue;
      const uint64_t id = assembled ? run.assembled[row + 2 * shard] : argument;
      const std::shared_ptr<store::Object> object = context_.store().Find(id);
      if (object == nullptr || !counted.insert(id).second) continue;
      int64_t bytes = 0;
      for (const store::Object::Shard& part : object->shards) bytes += part.device == device ? part.bytes : 0;
      arguments += bytes;
      if (std::find(run.donated.begin(), run.donated.end(), position) != run.donated.end()) given += bytes;
    }
    const int64_t limit = context_.store().account().limit(device);
    const int64_t more = std::max<int64_t>(made - given, 0);
    if (limit == 0 || arguments + more + function.temp_bytes <= limit) continue;
    return context_.Here(
        ResourceExhausted("out of device memory: " + Describe(function) + " needs " + store::FormatBytes(arguments) +
                          " for its arguments, " + store::FormatBytes(more) + " more for its results and " +
                          store::FormatBytes(function.temp_bytes) + " while running on local device " +
                          std::to_string(device) + ", which has " + store::FormatBytes(limit) +
                          "; it can never fit: use a smaller batch or model, more devices, or a higher memory "
                          "limit"));
  }
  return OkStatus();
}

// Given up whatever the outcome: the controller's books rely on it.
void Engine::RemoveDonated(const wire::Run& run) {
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size()) continue;
    const uint64_t argument = run.arguments[position];
    if (!(argument & wire::kAssembledBit)) {
      context_.store().Remove(argument);
      continue;
    }
    const size_t row = (argument & ~wire::kAssembledBit) * run.devices.size() * 2;
    for (size_t i = row; i < row + 2 * run.devices.size() && i < run.assembled.size(); i += 2) {
      context_.store().Remove(run.assembled[i]);
    }
  }
}

}  // namespace pathways::worker
