// Engine: buffers. Values that come in, go out, or move to another device.
#include <cstring>

#include "csrc/base/host_memory.h"
#include "csrc/base/strided.h"
#include "csrc/worker/engine.h"
#include "csrc/worker/pin.h"

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

Status Engine::OnPut(wire::Put put) {
  PW_ASSIGN_OR_RETURN(size_t device, context_.LocalDevice(put.device));
  const int64_t bytes = put.type.ByteSize();
  Status status = context_.store().account().Check(device, bytes, 0, "a tensor " + put.type.ToString());
  pjrt::Buffer buffer;
  const bool comes_later = put.inline_data.empty() && bytes > 0;
  // A buffer of which one shard was refused has no value, so the bytes of the others are not wanted either.
  if (auto object = context_.store().Find(put.buffer); object != nullptr && !object->error.ok()) {
    if (comes_later) incoming_->Refuse(put.key, kFromClient, object->error);
    return OkStatus();
  }
  bool declared = false;
  if (status.ok() && static_cast<int64_t>(put.inline_data.size()) == bytes) {
    auto made = context_.client()->BufferFromHost(put.inline_data.data(), put.type, static_cast<int>(device));
    status = made.status();
    if (made.ok()) buffer = *std::move(made);
  } else if (status.ok() && !put.inline_data.empty()) {
    status =
        DataLoss("PUT of " + put.type.ToString() + " carries " + std::to_string(put.inline_data.size()) + " bytes");
  } else if (status.ok()) {
    auto made = MakeIncoming(put.key, device, put.type, kFromClient);
    status = made.status();
    declared = made.ok();
    if (made.ok()) buffer = *std::move(made);
  }
  if (status.ok()) status = StorePut(put, device, std::move(buffer));
  if (status.ok()) return OkStatus();
  StoreFailed(put.buffer, context_.Here(status));
  if (comes_later && !declared) incoming_->Refuse(put.key, kFromClient, context_.Here(status));
  return OkStatus();
}

Status Engine::StorePut(const wire::Put& put, size_t device, pjrt::Buffer buffer) {
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
  if (fresh) return context_.store().Insert(put.buffer, std::move(object));
  context_.store().AccountShard(put.buffer, shard);
  return OkStatus();
}

Status Engine::OnExpect(const wire::Expect& expect) {
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
  if (bytes > 0) incoming_->Refuse(expect.buffer, expect.from_host, context_.Here(status));
  return OkStatus();
}

Result<pjrt::Buffer> Engine::MakeIncoming(uint64_t key, size_t device, const TensorType& type, uint32_t from_host) {
  PW_ASSIGN_OR_RETURN(auto async, context_.client()->CreateAsyncBuffer(type, static_cast<int>(device)));
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, async->TakeBuffer());
  incoming_->Declare(key, std::move(async), from_host);
  return buffer;
}

void Engine::StoreFailed(uint64_t id, const Status& status) {
  if (auto object = context_.store().Find(id)) {
    object->error = status;  // shards that are there already have no use without this one
  } else {
    object = std::make_shared<store::Object>(0);
    object->error = status;
    (void)context_.store().Insert(id, std::move(object));
  }
  context_.Send(wire::BufferFailed{id, status});
}

Result<Engine::Found> Engine::FindShard(uint64_t id, uint32_t shard) const {
  auto object = context_.store().Find(id);
  if (object == nullptr) {
    return context_.Here(
        NotFound("buffer " + std::to_string(id) + " is not on this host: it was donated to a run or freed"));
  }
  if (!object->error.ok()) return object->error;
  const size_t position = object->PositionOf(shard);
  if (position == object->shards.size()) {
    return context_.Here(InvalidArgument("buffer has no shard " + std::to_string(shard) + " on this host"));
  }
  if (const auto& part = object->At(position); !part.buffer.valid() && part.staged == nullptr) {
    return context_.Here(FailedPrecondition("shard " + std::to_string(shard) + " of the buffer has not been put yet"));
  }
  return Found{std::move(object), position};
}

void Engine::OnFetch(const wire::Fetch& fetch) {
  const uint64_t request = fetch.request;
  auto fail = [this, request](const Status& status) { context_.Send(wire::Fetched{request, status, 0, {}}); };
  Result<Found> found = FindShard(fetch.buffer, fetch.shard);
  if (!found.ok()) return fail(found.status());
  const store::Object::Shard& held = found->object->At(found->position);
  if (held.staged != nullptr) {  // there, only not on its device
    wire::Fetched answer{request, OkStatus(), 0, {}};
    if (!fetch.metadata_only && held.staged->size() <= wire::kMaxInlineBytes) {
      answer.size = held.staged->size();
      answer.inline_data.assign(held.staged->data(), held.staged->size());
    }
    if (fetch.metadata_only || answer.size > 0) return context_.Send(answer);
    const std::string peer = dataplane::DataPlane::PeerOfClient(static_cast<uint32_t>(wire::ClientOf(request)));
    return SendShard(peer, request, std::move(found->object), found->position, {}, fail);
  }
  const pjrt::Buffer& buffer = held.buffer;
  const uint64_t size = static_cast<uint64_t>(buffer.type().ByteSize());
  const std::shared_ptr<store::Origin> origin = found->object->OriginOf(found->position);

  if (fetch.metadata_only || size == 0) {
    Result<pjrt::EventHandle> ready = buffer.ReadyEvent();
    if (!ready.ok()) return fail(context_.Here(ready.status()));
    ready->OnReady([this, request, origin, fail](Status status) {
      if (!status.ok()) return FailRead(origin, status, fail);
      context_.Send(wire::Fetched{request, status, 0, {}});
    });
    return;
  }
  if (size <= wire::kMaxInlineBytes) {
    auto bytes = std::make_shared<std::string>(size, '\0');
    unready_sends_.fetch_add(1);
    // The plugin keeps the source alive until it has copied.
    buffer.ToHost(bytes->data(), size, [this, request, bytes, origin, fail](Status status) {
      unready_sends_.fetch_sub(1);
      if (!status.ok()) return FailRead(origin, status, fail);
      wire::Fetched answer;
      answer.request = request;
      answer.size = bytes->size();
      answer.inline_data = std::move(*bytes);
      context_.Send(answer);
    });
    return;
  }
  SendShard(dataplane::DataPlane::PeerOfClient(static_cast<uint32_t>(wire::ClientOf(request))), request,
            std::move(found->object), found->position, {}, fail);
}

void Engine::OnCopy(const wire::Copy& copy) {
  Result<size_t> local = context_.LocalDevice(copy.destination_device);
  Result<Found> source = FindShard(copy.source, copy.source_shard);
  if (local.ok()) {
    Status status = source.status();
    if (source.ok()) {
      status = context_.Here(context_.store().account().Check(*local, source->object->At(source->position).bytes, 0,
                                                              "a copy of " + copy.type.ToString()));
    }
    if (status.ok()) {
      const store::Object::Shard& from = source->object->At(source->position);
      auto buffer = CopyHere(from, *local);
      status = buffer.status();
      if (buffer.ok()) {
        auto made = OneShard(*std::move(buffer), *local, from.bytes);
        made->origin = source->object->origin;
        status = context_.store().Insert(copy.destination, std::move(made));
      }
    }
    if (!status.ok()) StoreFailed(copy.destination, status);
    return;
  }
  const wire::HostDescription* const to = cluster_view_.OfDevice(copy.destination_device);
  if (to == nullptr || !to->alive) return;  // its client hears of the lost host from the controller
  Result<std::string> peer = PeerOf(to->host);
  if (!peer.ok()) {
    context_.Send(wire::BufferFailed{copy.destination, context_.Here(peer.status())});
    return;
  }
  const uint64_t key = copy.destination;
  auto fail = [this, peer = *peer, key](const Status& status) { data_->SendFailure(peer, key, status); };
  if (!source.ok()) return fail(source.status());
  if (source->object->At(source->position).bytes == 0) return;  // nothing to send: the receiver has made it
  SendShard(*peer, key, std::move(source->object), source->position, {}, fail);
}

Result<std::string> Engine::PeerOf(uint32_t host) {
  const wire::HostDescription* const to = cluster_view_.Find(host);
  if (to == nullptr) return InvalidArgument("there is no host " + std::to_string(host));
  if (!to->alive) return Unavailable("host '" + to->name + "' is lost");
  PW_RETURN_IF_ERROR(data_->ConnectTo(to->name, to->data_endpoint, to->machine, to->session));
  return dataplane::DataPlane::PeerOfHost(to->name);
}

// A copy of a shard on a device of this host, ready when its own event is.
Result<pjrt::Buffer> Engine::CopyHere(const store::Object::Shard& from, size_t device) {
  if (from.staged != nullptr) return FromStaging(from.staged, *from.staged_type, device);
  if (from.device != device) return from.buffer.CopyToDevice(static_cast<int>(device));
  // The plugin refuses to copy to the same device; go through host memory.
  PW_ASSIGN_OR_RETURN(auto unique, context_.client()->CreateAsyncBuffer(from.buffer.type(), static_cast<int>(device)));
  std::shared_ptr<pjrt::AsyncBuffer> async = std::move(unique);
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, async->TakeBuffer());
  auto bytes = std::make_shared<HostMemory>(static_cast<size_t>(from.bytes));
  from.buffer.ToHost(bytes->data(), bytes->size(), [this, async, bytes](Status status) {
    data_->Post([this, async, bytes, status] {
      if (!status.ok()) {
        (void)async->SetError(status);
        return;
      }
      async->Transfer(bytes->data(), bytes->size(), 0, true, [this, async, bytes](Status) {
        data_->Post([async] {});  // let go outside the callback, which the manager waits for
      });
    });
  });
  return buffer;
}

// Sends one shard's bytes when they exist: from the device's memory where that is host memory, else through a copy. A
// peer that is this host itself has no name.
void Engine::SendShard(const std::string& peer, uint64_t key, std::shared_ptr<store::Object> object, size_t position,
                       const wire::Box& box, std::function<void(const Status&)> on_error) {
  const auto take_out = [this, peer, key, box](const TensorType& type, const void* whole,
                                               std::shared_ptr<const void> owner) {
    ByteSource source = box.whole() ? ByteSource(whole, static_cast<uint64_t>(type.ByteSize()))
                                    : ByteSource(whole, type, BoxView{box.start, box.size});
    if (!peer.empty()) return data_->Send(peer, key, std::move(source), [owner](const Status&) {});
    if (source.run() == nullptr) {
      auto part = std::make_shared<HostMemory>(source.size());
      source.Copy(0, source.size(), part->data());
      source = ByteSource(part->data(), part->size());
      owner = std::move(part);
    }
    incoming_->Deliver(key, {source.run(), source.size()}, owner);
  };
  if (const store::Object::Shard& shard = object->At(position); shard.staged != nullptr) {
    return take_out(*shard.staged_type, shard.staged->data(), shard.staged);
  }
  const std::shared_ptr<store::Origin> origin = object->OriginOf(position);
  auto pin = std::make_shared<Pin>(std::move(object), position);
  Result<pjrt::EventHandle> ready = pin->buffer().ReadyEvent();
  if (!ready.ok()) return on_error(context_.Here(ready.status()));
  unready_sends_.fetch_add(1);
  ready->OnReady([this, take_out, pin, origin, on_error](Status status) {
    unready_sends_.fetch_sub(1);
    if (!status.ok()) return FailRead(origin, status, on_error);
    const TensorType& type = pin->buffer().type();
    const size_t size = static_cast<size_t>(type.ByteSize());
    Result<const void*> pointer = pin->buffer().HostPointer();
    if (pointer.ok()) return take_out(type, *pointer, pin);
    auto bytes = std::make_shared<HostMemory>(size);
    pin->buffer().ToHost(bytes->data(), size, [this, take_out, pin, bytes, origin, on_error](Status copied) {
      if (!copied.ok()) return FailRead(origin, copied, on_error);
      take_out(pin->buffer().type(), bytes->data(), bytes);
    });
  });
}

void Engine::FailRead(std::shared_ptr<store::Origin> origin, const Status& status,
                      std::function<void(const Status&)> on_error) {
  reactor_->Post([this, origin = std::move(origin), status, on_error = std::move(on_error)] {
    const auto answer = [this, status, on_error](const store::Origin* run) {
      if (run != nullptr && !run->cause.ok()) return on_error(run->cause);
      on_error(
          root_causes_.Find(status, {}, nullptr, [this](const Status& reported) { return context_.Here(reported); }));
    };
    if (origin == nullptr || origin->ended) return answer(origin.get());
    // It is alive when it calls; held by what it calls, it would hold itself.
    origin->dependents.push_back([answer, run = origin.get()] { answer(run); });
  });
}

}  // namespace pathways::worker
