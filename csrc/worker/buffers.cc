#include "csrc/worker/buffers.h"

#include "csrc/base/host_memory.h"
#include "csrc/base/strided.h"
#include "csrc/worker/known_values.h"
#include "csrc/worker/pin.h"
#include "csrc/worker/staging.h"

namespace pathways::worker {
namespace {

std::shared_ptr<store::Object> OneShard(pjrt::Buffer buffer, size_t device, int64_t bytes) {
  auto object = std::make_shared<store::Object>(1);
  object->shards[0].buffer = std::move(buffer);
  object->shards[0].device = device;
  object->shards[0].bytes = bytes;
  return object;
}

}  // namespace

Status Buffers::Put(const wire::Put& put) {
  PW_ASSIGN_OR_RETURN(const size_t device, context_.LocalDevice(put.device));
  const bool comes_later = put.inline_data.empty() && put.type.ByteSize() > 0;
  // A buffer of which one shard was refused has no value, so the bytes of the others are not wanted either.
  if (auto object = context_.store().Find(put.buffer); object != nullptr && !object->error.ok()) {
    if (comes_later) incoming_.Refuse(put.key, kFromClient, object->error);
    return OkStatus();
  }
  bool declared = false;
  Result<pjrt::Buffer> buffer = MakePut(put, device, &declared);
  Status status = buffer.status();
  if (status.ok()) status = Store(put, device, *std::move(buffer));
  if (status.ok()) return OkStatus();
  StoreFailed(put.buffer, context_.Here(status));
  if (comes_later && !declared) incoming_.Refuse(put.key, kFromClient, context_.Here(status));
  return OkStatus();
}

Result<pjrt::Buffer> Buffers::MakePut(const wire::Put& put, size_t device, bool* declared) {
  const int64_t bytes = put.type.ByteSize();
  PW_RETURN_IF_ERROR(context_.store().account().Check(device, bytes, 0, "a tensor " + put.type.ToString()));
  if (static_cast<int64_t>(put.inline_data.size()) == bytes) {
    return context_.client()->BufferFromHost(put.inline_data.data(), put.type, static_cast<int>(device));
  }
  if (!put.inline_data.empty()) {
    return DataLoss("PUT of " + put.type.ToString() + " carries " + std::to_string(put.inline_data.size()) + " bytes");
  }
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, MakeIncoming(put.key, device, put.type, kFromClient));
  *declared = true;
  return buffer;
}

Status Buffers::Store(const wire::Put& put, size_t device, pjrt::Buffer buffer) {
  std::shared_ptr<store::Object> object = context_.store().Find(put.buffer);
  const bool fresh = object == nullptr;
  if (fresh) {
    // One PUT a shard, so no more of them than this host has devices.
    if (put.shards_here == 0 || put.shards_here > context_.device_count()) {
      return InvalidArgument("PUT announces " + std::to_string(put.shards_here) + " shards for a host of " +
                             std::to_string(context_.device_count()) + " devices");
    }
    object = std::make_shared<store::Object>(put.shards_here);
  }
  size_t position = 0;
  while (position < object->shards.size() && object->shards[position].buffer.valid()) ++position;
  if (position == object->shards.size()) {
    return Status(Code::kAlreadyExists, "expected a new shard of buffer " + std::to_string(put.buffer) +
                                            ", got shard " + std::to_string(put.shard) + " when all were there");
  }
  store::Object::Shard& shard = object->shards[position];
  shard.buffer = std::move(buffer);
  shard.device = device;
  shard.bytes = put.type.ByteSize();
  shard.number = put.shard;
  Follow(*object, shard.buffer);
  if (fresh) return context_.store().Insert(put.buffer, std::move(object));
  context_.store().AccountShard(put.buffer, shard);
  return OkStatus();
}

void Buffers::Follow(store::Object& object, const pjrt::Buffer& buffer) {
  if (context_.hands_errors_on() || buffer.arrives()) return;
  const Result<pjrt::EventHandle> ready = buffer.ReadyEvent();
  if (!ready.ok()) {
    object.error = context_.Here(ready.status());
    return;
  }
  const auto origin = std::make_shared<store::Origin>();
  RootCauses::Inputs before;
  RootCauses::Note(object, before);
  object.origin = origin;
  ready->OnReady([this, origin, before](const Status& status) {
    context_.engine().Post([this, origin, before, status] { EndFollowed(origin, before, status); });
  });
}

void Buffers::EndFollowed(const std::shared_ptr<store::Origin>& origin, const RootCauses::Inputs& before,
                          const Status& status) {
  if (RootCauses::MustWait(before, [this, origin, before, status] { EndFollowed(origin, before, status); })) return;
  Status cause = RootCauses::FirstFailure(before);
  if (cause.ok() && !status.ok()) {
    cause =
        causes_.Find(status, before, origin.get(), [this](const Status& reported) { return context_.Here(reported); });
  }
  RootCauses::End(*origin, cause);
}

Status Buffers::Expect(const wire::Expect& expect) {
  PW_ASSIGN_OR_RETURN(size_t device, context_.LocalDevice(expect.device));
  const int64_t bytes = expect.type.ByteSize();
  Status status =
      context_.store().account().Check(device, bytes, 0, "a tensor " + expect.type.ToString() + " from another host");
  if (status.ok() && bytes == 0) {
    auto buffer = context_.client()->BufferFromHost("", expect.type, static_cast<int>(device));
    status = buffer.status();
    if (buffer.ok()) return context_.store().Insert(expect.buffer, OneShard(*std::move(buffer), device, 0));
  }
  if (status.ok()) {
    auto made = MakeIncoming(expect.buffer, device, expect.type, expect.from_host);
    status = made.status();
    if (made.ok()) return context_.store().Insert(expect.buffer, OneShard(*std::move(made), device, bytes));
  }
  StoreFailed(expect.buffer, context_.Here(status));
  if (bytes > 0) incoming_.Refuse(expect.buffer, expect.from_host, context_.Here(status));
  return OkStatus();
}

Result<pjrt::Buffer> Buffers::MakeIncoming(uint64_t key, size_t device, const TensorType& type, uint32_t from_host) {
  PW_ASSIGN_OR_RETURN(auto async, context_.client()->CreateAsyncBuffer(type, static_cast<int>(device)));
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, async->TakeBuffer());
  incoming_.Declare(key, std::move(async), from_host);
  return buffer;
}

void Buffers::StoreFailed(uint64_t id, const Status& status) {
  if (auto object = context_.store().Find(id)) {
    object->error = status;  // shards that are there already have no use without this one
  } else {
    object = std::make_shared<store::Object>(0);
    object->error = status;
    (void)context_.store().Insert(id, std::move(object));
  }
  context_.Send(wire::BufferFailed{id, status});
}

void Buffers::Fetch(const wire::Fetch& fetch) {
  const uint64_t request = fetch.request;
  const auto fail = [this, request](const Status& status) { context_.Send(wire::Fetched{request, status, 0, {}}); };
  Result<FoundShard> found = FindShard(context_, fetch.buffer, fetch.shard);
  if (!found.ok()) return fail(found.status());
  const store::Object::Shard& held = found->shard();
  if (held.staged != nullptr) return FetchStaged(fetch, *std::move(found), fail);
  const pjrt::Buffer& buffer = held.buffer;
  const uint64_t size = static_cast<uint64_t>(buffer.type().ByteSize());
  if (fetch.metadata_only || size == 0) {
    Result<pjrt::EventHandle> ready = buffer.ReadyEvent();
    if (!ready.ok()) return fail(context_.Here(ready.status()));
    ready->OnReady([this, request, origin = found->object->OriginOf(found->position), fail](const Status& status) {
      if (!status.ok()) return FailRead(origin, status, fail);
      WhenMade(context_, origin, [this, request, fail](const Status& made) {
        if (!made.ok()) return fail(made);
        context_.Send(wire::Fetched{request, OkStatus(), 0, {}});
      });
    });
    return;
  }
  if (size <= wire::kMaxInlineBytes) return SendInline(request, *std::move(found), size, fail);
  SendShard(dataplane::DataPlane::PeerOfClient(static_cast<uint32_t>(wire::ClientOf(request))), request,
            *std::move(found), {}, fail);
}

// It is there, only not on its device.
void Buffers::FetchStaged(const wire::Fetch& fetch, FoundShard found, OnError fail) {
  const HostMemory& bytes = *found.shard().staged;
  wire::Fetched answer{fetch.request, OkStatus(), 0, {}};
  if (!fetch.metadata_only && bytes.size() <= wire::kMaxInlineBytes) {
    answer.size = bytes.size();
    answer.inline_data.assign(bytes.data(), bytes.size());
  }
  if (fetch.metadata_only || answer.size > 0) {
    return WhenMade(context_, found.object->OriginOf(found.position), [this, answer, fail](const Status& made) {
      if (!made.ok()) return fail(made);
      context_.Send(answer);
    });
  }
  SendShard(dataplane::DataPlane::PeerOfClient(static_cast<uint32_t>(wire::ClientOf(fetch.request))), fetch.request,
            std::move(found), {}, std::move(fail));
}

void Buffers::SendInline(uint64_t request, FoundShard found, size_t size, OnError fail) {
  const std::shared_ptr<store::Origin> origin = found.object->OriginOf(found.position);
  unready_sends_.fetch_add(1);
  if (context_.hands_errors_on() || !found.shard().buffer.arrives()) {
    return ReadInline(request, found.shard().buffer, size, origin, std::move(fail));
  }
  // A copy may not hear of the transfer's error.
  auto pin = std::make_shared<Pin>(std::move(found.object), found.position);
  const auto read = [this, request, pin, size, origin, fail = std::move(fail)](const Status& status) {
    if (status.ok()) return ReadInline(request, pin->buffer(), size, origin, fail);
    unready_sends_.fetch_sub(1);
    FailRead(origin, status, fail);
  };
  const Result<pjrt::EventHandle> ready = pin->buffer().ReadyEvent();
  return ready.ok() ? ready->OnReady(read) : read(ready.status());
}

void Buffers::ReadInline(uint64_t request, const pjrt::Buffer& buffer, size_t size,
                         std::shared_ptr<store::Origin> origin, OnError fail) {
  auto bytes = std::make_shared<std::string>(size, '\0');
  // The plugin keeps the source alive until it has copied.
  buffer.ToHost(bytes->data(), size,
                [this, request, bytes, origin = std::move(origin), fail = std::move(fail)](const Status& status) {
                  unready_sends_.fetch_sub(1);
                  if (!status.ok()) return FailRead(origin, status, fail);
                  WhenMade(context_, origin, [this, request, bytes, fail](const Status& made) {
                    if (!made.ok()) return fail(made);
                    wire::Fetched answer;
                    answer.request = request;
                    answer.size = bytes->size();
                    answer.inline_data = std::move(*bytes);
                    context_.Send(answer);
                  });
                });
}

void Buffers::Copy(const wire::Copy& copy) {
  const Result<size_t> local = context_.LocalDevice(copy.destination_device);
  Result<FoundShard> source = FindShard(context_, copy.source, copy.source_shard);
  if (!local.ok()) return SendCopy(copy, std::move(source));
  Status status = source.status();
  if (status.ok()) {
    Result<std::shared_ptr<store::Object>> made = CopyHere(copy, *source, *local);
    status = made.status();
    if (made.ok()) status = context_.store().Insert(copy.destination, *std::move(made));
  }
  if (!status.ok()) StoreFailed(copy.destination, status);
}

Result<std::shared_ptr<store::Object>> Buffers::CopyHere(const wire::Copy& copy, const FoundShard& source,
                                                         size_t device) {
  const store::Object::Shard& from = source.shard();
  PW_RETURN_IF_ERROR(
      context_.Here(context_.store().account().Check(device, from.bytes, 0, "a copy of " + copy.type.ToString())));
  if (!context_.hands_errors_on()) PW_RETURN_IF_ERROR(FailureOf(context_, causes_, *source.object));
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, Duplicate(from, device));
  auto made = OneShard(std::move(buffer), device, from.bytes);
  const std::shared_ptr<store::Origin>& origin = source.object->OriginOf(source.position);
  made->origin = origin != nullptr ? origin : source.object->origin;
  Follow(*made, made->shards[0].buffer);
  return made;
}

void Buffers::SendCopy(const wire::Copy& copy, Result<FoundShard> source) {
  const wire::HostDescription* const to = cluster_.OfDevice(copy.destination_device);
  if (to == nullptr || !to->alive) return;  // its client hears of the lost host from the controller
  const Result<std::string> peer = PeerOf(to->host);
  if (!peer.ok()) return context_.Send(wire::BufferFailed{copy.destination, context_.Here(peer.status())});
  const uint64_t key = copy.destination;
  const auto fail = [this, peer = *peer, key](const Status& status) { data_.SendFailure(peer, key, status); };
  if (!source.ok()) return fail(source.status());
  if (source->shard().bytes == 0) return;  // nothing to send: the receiver has made it
  SendShard(*peer, key, *std::move(source), {}, fail);
}

void Buffers::Free(const wire::Free& free) {
  for (const uint64_t id : free.buffers) context_.store().Remove(id);
}

Result<std::string> Buffers::PeerOf(uint32_t host) {
  const wire::HostDescription* const to = cluster_.Find(host);
  if (to == nullptr) return InvalidArgument("there is no host " + std::to_string(host));
  if (!to->alive) return Unavailable("host '" + to->name + "' is lost");
  PW_RETURN_IF_ERROR(data_.ConnectTo(to->name, to->data_endpoint, to->machine, to->session));
  return dataplane::DataPlane::PeerOfHost(to->name);
}

Result<pjrt::Buffer> Buffers::Duplicate(const store::Object::Shard& from, size_t device) {
  if (from.staged != nullptr) return StagedToDevice(*context_.client(), data_, from.staged, *from.staged_type, device);
  if (from.device != device) return from.buffer.CopyToDevice(static_cast<int>(device));
  // The plugin refuses to copy to the same device; go through host memory.
  PW_ASSIGN_OR_RETURN(auto unique, context_.client()->CreateAsyncBuffer(from.buffer.type(), static_cast<int>(device)));
  std::shared_ptr<pjrt::AsyncBuffer> async = std::move(unique);
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, async->TakeBuffer());
  const auto size = static_cast<size_t>(from.buffer.type().ByteSize());
  const std::shared_ptr<char> bytes = copies_.Take(size);
  from.buffer.ToHost(bytes.get(), size, [this, async, bytes, size](const Status& status) {
    data_.Post([this, async, bytes, size, status] {
      if (!status.ok()) {
        (void)async->SetError(status);
        return;
      }
      async->Transfer(bytes.get(), size, 0, true, [this, async, bytes](const Status&) {
        data_.Post([async] {});  // let go outside the callback, which the manager waits for
      });
    });
  });
  return buffer;
}

void Buffers::SendBytes(const std::string& peer, uint64_t key, const wire::Box& box, const TensorType& type,
                        const void* whole, std::shared_ptr<const void> owner) {
  ByteSource source = box.whole() ? ByteSource(whole, static_cast<uint64_t>(type.ByteSize()))
                                  : ByteSource(whole, type, BoxView{box.start, box.size});
  if (!peer.empty()) return data_.Send(peer, key, std::move(source), [owner](const Status&) {});
  if (source.run() == nullptr) {
    auto part = std::make_shared<HostMemory>(source.size());
    source.Copy(0, source.size(), part->data());
    source = ByteSource(part->data(), part->size());
    owner = std::move(part);
  }
  incoming_.Deliver(key, {source.run(), source.size()}, owner);
}

void Buffers::SendMade(const std::string& peer, uint64_t key, const wire::Box& box,
                       const std::shared_ptr<const TensorType>& type, const void* whole,
                       const std::shared_ptr<const void>& owner, const std::shared_ptr<store::Origin>& origin,
                       const OnError& on_error) {
  WhenMade(context_, origin, [this, peer, key, box, type, whole, owner, on_error](const Status& made) {
    if (!made.ok()) return on_error(made);
    SendBytes(peer, key, box, *type, whole, owner);
  });
}

void Buffers::SendShard(const std::string& peer, uint64_t key, FoundShard found, const wire::Box& box,
                        OnError on_error) {
  const std::shared_ptr<store::Origin> origin = found.object->OriginOf(found.position);
  if (const store::Object::Shard& shard = found.shard(); shard.staged != nullptr) {
    return SendMade(peer, key, box, shard.staged_type, shard.staged->data(), shard.staged, origin, on_error);
  }
  auto pin = std::make_shared<Pin>(std::move(found.object), found.position);
  Result<pjrt::EventHandle> ready = pin->buffer().ReadyEvent();
  if (!ready.ok()) return on_error(context_.Here(ready.status()));
  unready_sends_.fetch_add(1);
  ready->OnReady([this, peer, key, box, pin, origin, on_error = std::move(on_error)](const Status& status) {
    unready_sends_.fetch_sub(1);
    if (!status.ok()) return FailRead(origin, status, on_error);
    const std::shared_ptr<const TensorType>& type = pin->buffer().shared_type();
    const size_t size = static_cast<size_t>(type->ByteSize());
    Result<const void*> pointer = pin->buffer().HostPointer();
    if (pointer.ok()) return SendMade(peer, key, box, type, *pointer, pin, origin, on_error);
    const std::shared_ptr<char> bytes = copies_.Take(size);
    pin->buffer().ToHost(bytes.get(), size, [this, peer, key, box, pin, bytes, origin, on_error](const Status& copied) {
      if (!copied.ok()) return FailRead(origin, copied, on_error);
      SendMade(peer, key, box, pin->buffer().shared_type(), bytes.get(), bytes, origin, on_error);
    });
  });
}

void Buffers::FailRead(std::shared_ptr<store::Origin> origin, const Status& status, OnError on_error) {
  WhenEnded(context_, std::move(origin), [this, status, on_error = std::move(on_error)](const store::Origin* run) {
    if (run != nullptr && !run->cause.ok()) return on_error(run->cause);
    on_error(causes_.Find(status, {}, nullptr, [this](const Status& reported) { return context_.Here(reported); }));
  });
}

void Buffers::TellBySender(const std::string& peer, uint64_t key, const Status& status) {
  if (peer == dataplane::DataPlane::PeerOfClient(static_cast<uint32_t>(wire::ClientOf(key)))) {
    return context_.Send(wire::Fetched{key, context_.Here(status), 0, {}});
  }
  for (const wire::HostDescription& host : cluster_.hosts()) {
    if (host.alive && peer == dataplane::DataPlane::PeerOfHost(host.name)) {
      context_.Send(wire::TransferFailed{host.host, key, context_.Here(status)});
    }
  }
}

}  // namespace pathways::worker
