#include "csrc/worker/files.h"

#include <algorithm>
#include <new>
#include <optional>
#include <unordered_set>

#include "csrc/worker/known_values.h"
#include "csrc/worker/pin.h"
#include "csrc/worker/staging.h"
#include "csrc/worker/tensor_file.h"

namespace pathways::worker {
namespace {

using Clock = std::chrono::steady_clock;

// Files whose contents were found right lately.
constexpr size_t kFilesRemembered = 4096;

uint64_t MicrosecondsSince(Clock::time_point start) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
}

int64_t BytesOf(const std::vector<wire::FileBox>& boxes, DType dtype) {
  int64_t bytes = 0;
  for (const wire::FileBox& box : boxes) bytes += BoxBytes({dtype, {}}, {{}, box.size});
  return bytes;
}

// RESOURCE_EXHAUSTED, with this text, for want of memory.
template <typename Job>
Status NoThrow(std::string text, Job job) {
  try {
    return job();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(std::move(text));
  }
}

}  // namespace

// A file that is being written. Used by jobs of the file thread, but for `left`.
struct Files::Saving {
  Saving(wire::Save message, const FileRoot& files)
      : save(std::move(message)), root(files), left(save.shards.size() + 1) {}
  const wire::Save save;
  const FileRoot root;
  const Clock::time_point start = Clock::now();
  std::optional<TensorFile> file;
  Status status;
  uint64_t bytes = 0;
  std::atomic<size_t> left;  // shards whose bytes have not been written, and one

  Status Open() {
    if (file) return OkStatus();
    PW_ASSIGN_OR_RETURN(TensorFile opened, save.create != 0
                                               ? TensorFile::Create(save.path, save.file_bytes, root)
                                               : TensorFile::OpenToWrite(save.path, save.file_bytes, root));
    file.emplace(std::move(opened));
    return file->Write(save.header, 0);
  }
  Status Write(size_t index, const TensorType& type, const void* from) {
    PW_RETURN_IF_ERROR(Open());
    for (const wire::FileBox& box : save.shards[index].boxes) PW_RETURN_IF_ERROR(file->WriteBox(box, type, from));
    bytes += static_cast<uint64_t>(BytesOf(save.shards[index].boxes, type.dtype));
    return OkStatus();
  }
  Status Finish(uint32_t* crc32c) {
    PW_RETURN_IF_ERROR(Open());  // a file without shards
    if (save.create != 0) {      // of a file that others write, too, there is none yet
      PW_RETURN_IF_ERROR(NoThrow("no host memory to check what was written", [&]() -> Status {
        PW_ASSIGN_OR_RETURN(*crc32c, file->Checksum());
        return OkStatus();
      }));
    }
    return file->Finish();
  }
};

// What is to be written: a shard's bytes, which their owner keeps.
struct Files::Bytes {
  std::shared_ptr<const TensorType> type;
  const void* from = nullptr;
  std::shared_ptr<const void> owner;
};

void Files::Save(wire::Save save) {
  auto saving = std::make_shared<Saving>(std::move(save), root_);
  std::vector<FoundShard> found;
  for (const wire::SavedShard& shard : saving->save.shards) {
    Result<FoundShard> one = FindShard(context_, shard.buffer, shard.shard);
    if (!one.ok()) return context_.Send(wire::Stored{saving->save.request, context_.number(), one.status(), 0, 0, 0});
    found.push_back(*std::move(one));
  }
  // CPU devices' values are in host memory already, and hardly ever copied.
  copies_limit_ =
      context_.is_cpu()
          ? UINT64_MAX
          : static_cast<uint64_t>(std::max<int64_t>(StagingLimit(context_) - context_.store().staged_bytes(), 0));
  for (size_t index = 0; index < found.size(); ++index) TakeOut(saving, index, std::move(found[index]));
  Write(saving, saving->save.shards.size(), OkStatus(), {});
}

void Files::TakeOut(const std::shared_ptr<Saving>& saving, size_t index, FoundShard found) {
  const store::Object::Shard& shard = found.shard();
  const std::shared_ptr<store::Origin> origin = found.object->OriginOf(found.position);
  if (shard.staged != nullptr) {
    return WriteMade(saving, index, origin, {shard.staged_type, shard.staged->data(), shard.staged});
  }
  const std::shared_ptr<const TensorType> type = shard.buffer.shared_type();
  // Moving it to host memory waits for us, since its memory is not free before we let go of it.
  auto pin = std::make_shared<Pin>(std::move(found.object), found.position);
  // Where devices compute in this host's memory the bytes are read in place, and a run that would overwrite them takes
  // other memory. Elsewhere they are copied, which the plugin orders before what is enqueued later; but such a copy may
  // not hear of a transfer's error.
  if (!context_.is_cpu() && (context_.hands_errors_on() || !shard.buffer.arrives())) {
    return CopyOut(saving, index, pin, origin);
  }
  Result<pjrt::EventHandle> ready = pin->buffer().ReadyEvent();
  if (!ready.ok()) return Write(saving, index, ready.status(), {type, nullptr, nullptr});
  ready->OnReady([this, saving, index, type, pin, origin](const Status& status) {
    if (!status.ok()) return Write(saving, index, status, {type, nullptr, nullptr});
    const Result<const void*> pointer = pin->buffer().HostPointer();
    if (pointer.ok()) return WriteMade(saving, index, origin, {type, *pointer, pin});
    CopyOut(saving, index, pin, origin);
  });
}

void Files::CopyOut(const std::shared_ptr<Saving>& saving, size_t index, const std::shared_ptr<Pin>& pin,
                    const std::shared_ptr<store::Origin>& origin) {
  const std::shared_ptr<const TensorType> type = pin->buffer().shared_type();
  Result<std::shared_ptr<HostMemory>> made = thread_.Copy(static_cast<size_t>(type->ByteSize()), copies_limit_);
  if (!made.ok()) {
    return Write(saving, index, made.status().WithPrefix("saving " + type->ToString()), {type, nullptr, nullptr});
  }
  const std::shared_ptr<HostMemory> bytes = *std::move(made);
  pin->buffer().ToHost(bytes->data(), bytes->size(),
                       [this, saving, index, type, bytes, pin, origin](const Status& status) {
                         if (!status.ok()) return Write(saving, index, status, {type, nullptr, nullptr});
                         WriteMade(saving, index, origin, {type, bytes->data(), bytes});
                       });
}

void Files::WriteMade(const std::shared_ptr<Saving>& saving, size_t index, const std::shared_ptr<store::Origin>& origin,
                      Bytes bytes) {
  WhenMade(context_, origin,
           [this, saving, index, bytes = std::move(bytes)](const Status& made) { Write(saving, index, made, bytes); });
}

void Files::Write(const std::shared_ptr<Saving>& saving, size_t index, Status status, Bytes bytes) {
  thread_.Submit([this, saving, index, status = std::move(status), bytes = std::move(bytes)]() mutable {
    if (!status.ok() && saving->status.ok()) saving->status = status;
    if (saving->status.ok() && index < saving->save.shards.size()) {
      saving->status = NoThrow("no host memory to write a part of a " + bytes.type->ToString(),
                               [&] { return saving->Write(index, *bytes.type, bytes.from); });
    }
    bytes.owner.reset();
    if (saving->left.fetch_sub(1) > 1) return;
    uint32_t crc32c = 0;
    if (saving->status.ok()) saving->status = saving->Finish(&crc32c);
    saving->file.reset();
    context_.Send(wire::Stored{saving->save.request, context_.number(),
                               saving->status.ok() ? OkStatus() : context_.Here(saving->status), saving->bytes,
                               MicrosecondsSince(saving->start), crc32c});
  });
}

void Files::Load(wire::Load load) {
  Status status;
  std::unordered_set<uint64_t> keys;
  for (const wire::LoadedShard& shard : load.shards) {
    if (!keys.insert(shard.key).second) {
      status = InvalidArgument("LOAD names key " + std::to_string(shard.key) + " twice");
    }
    // The PUT before this message may have failed.
    const std::shared_ptr<store::Object> object = context_.store().Find(shard.buffer);
    if (object == nullptr) status = NotFound("buffer " + std::to_string(shard.buffer) + " is not on this host");
    if (object != nullptr && !object->error.ok()) status = object->error;
    const bool fits =
        object != nullptr && std::any_of(object->shards.begin(), object->shards.end(),
                                         [&](const auto& of) { return of.bytes == shard.type.ByteSize(); });
    if (status.ok() && !fits) status = InvalidArgument("no shard of the buffer is " + shard.type.ToString());
    if (!status.ok()) break;
  }
  thread_.Submit([this, load = std::move(load), status = std::move(status)] { Read(load, status); });
}

void Files::Read(const wire::Load& load, Status status) {
  if (incoming_.IsGone(static_cast<uint32_t>(wire::ClientOf(load.request)))) return;
  const Clock::time_point start = Clock::now();
  uint64_t bytes = 0;
  size_t delivered = 0;
  if (status.ok()) {
    status = NoThrow("no host memory to read a shard into", [&] { return ReadShards(load, &bytes, &delivered); });
  }
  if (!status.ok()) {
    status = context_.Here(status);
    for (size_t i = delivered; i < load.shards.size(); ++i) {
      incoming_.DeliverFailure(load.shards[i].key, status, Incoming::When::kDeclared);
    }
  }
  context_.Send(wire::Stored{load.request, context_.number(), status, bytes, MicrosecondsSince(start), 0});
}

Status Files::ReadShards(const wire::Load& load, uint64_t* bytes, size_t* delivered) {
  std::vector<TensorFile> files;
  for (const wire::SourceFile& file : load.files) {
    PW_ASSIGN_OR_RETURN(TensorFile opened, TensorFile::OpenToRead(file.path, file.bytes, root_));
    files.push_back(std::move(opened));
  }
  for (const wire::LoadedShard& shard : load.shards) {
    for (const wire::FileBox& box : shard.boxes) {
      if (box.file >= files.size()) return InvalidArgument("LOAD names file " + std::to_string(box.file));
      PW_RETURN_IF_ERROR(TensorFile::Check(box, shard.type, load.files[box.file].bytes));
    }
  }
  PW_RETURN_IF_ERROR(CheckContents(load, files));
  for (const wire::LoadedShard& shard : load.shards) {
    if (incoming_.IsGone(static_cast<uint32_t>(wire::ClientOf(load.request)))) return Cancelled("its client is gone");
    const int64_t size = shard.type.ByteSize();
    const int64_t covered = BytesOf(shard.boxes, shard.type.dtype);
    PW_ASSIGN_OR_RETURN(std::shared_ptr<HostMemory> memory, thread_.Borrow(static_cast<size_t>(size), covered < size));
    for (const wire::FileBox& box : shard.boxes) {
      PW_RETURN_IF_ERROR(files[box.file].ReadBox(box, shard.type, memory->data()));
    }
    *bytes += static_cast<uint64_t>(covered);
    incoming_.Deliver(shard.key, {reinterpret_cast<const std::byte*>(memory->data()), memory->size()}, memory,
                      Incoming::When::kDeclared);
    ++*delivered;
  }
  return OkStatus();
}

Status Files::CheckContents(const wire::Load& load, const std::vector<TensorFile>& files) {
  std::vector<char> read(files.size(), 0);
  for (const wire::LoadedShard& shard : load.shards) {
    for (const wire::FileBox& box : shard.boxes) read[box.file] = 1;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const wire::SourceFile& file = load.files[i];
    if (read[i] == 0 || file.checked == 0) continue;
    PW_ASSIGN_OR_RETURN(std::string state, files[i].State());
    state += " " + std::to_string(file.crc32c);
    if (state == checked_[file.path]) continue;  // a load may be several messages
    PW_RETURN_IF_ERROR(files[i].CheckContents(file.crc32c));
    if (checked_.size() >= kFilesRemembered) checked_.clear();
    checked_[file.path] = std::move(state);
  }
  return OkStatus();
}

}  // namespace pathways::worker
