// Engine: buffers. Values that come in, go out, or move to another device.
#include <cstring>

#include "csrc/base/host_memory.h"
#include "csrc/worker/engine.h"

namespace pathways::worker {
namespace {

std::shared_ptr<store::Object> OneShard(pjrt::Buffer buffer, size_t device, int64_t bytes) {
  auto object = std::make_shared<store::Object>(1);
  object->shards[0].buffer = std::move(buffer);
  object->shards[0].device = device;
  object->shards[0].bytes = bytes;
  return object;
}

// Keeps a shard from being donated, and its memory alive, while bytes are read behind the plugin's back.
class Pin {
 public:
  Pin(std::shared_ptr<store::Object> object, uint32_t shard) : object_(std::move(object)), shard_(shard) {
    object_->shards[shard_].pins.fetch_add(1);
  }
  ~Pin() { object_->shards[shard_].pins.fetch_sub(1); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  const pjrt::Buffer& buffer() const { return object_->shards[shard_].buffer; }

 private:
  const std::shared_ptr<store::Object> object_;
  const uint32_t shard_;
};

}  // namespace

Status Engine::OnPut(wire::Put put) {
  PW_ASSIGN_OR_RETURN(size_t device, LocalDevice(put.device));
  const int64_t bytes = put.type.ByteSize();
  Status status = store_->account().Check(device, bytes, 0, "a tensor " + put.type.ToString());
  if (status.ok() && static_cast<int64_t>(put.inline_data.size()) == bytes) {
    auto buffer = client_->BufferFromHost(put.inline_data.data(), put.type, static_cast<int>(device));
    status = buffer.status();
    if (buffer.ok()) return store_->Insert(put.buffer, OneShard(*std::move(buffer), device, bytes));
  } else if (status.ok() && !put.inline_data.empty()) {
    status =
        DataLoss("PUT of " + put.type.ToString() + " carries " + std::to_string(put.inline_data.size()) + " bytes");
  } else if (status.ok()) {
    status = MakeIncoming(put.buffer, device, put.type, kFromClient);
    if (status.ok()) return OkStatus();
  }
  StoreFailed(put.buffer, device, Here(status), true);
  return OkStatus();
}

Status Engine::OnExpect(const wire::Expect& expect) {
  PW_ASSIGN_OR_RETURN(size_t device, LocalDevice(expect.device));
  const int64_t bytes = expect.type.ByteSize();
  Status status =
      store_->account().Check(device, bytes, 0, "a tensor " + expect.type.ToString() + " from another host");
  if (status.ok() && bytes == 0) {
    auto buffer = client_->BufferFromHost("", expect.type, static_cast<int>(device));
    status = buffer.status();
    if (buffer.ok()) return store_->Insert(expect.buffer, OneShard(*std::move(buffer), device, 0));
  }
  if (status.ok()) status = MakeIncoming(expect.buffer, device, expect.type, expect.from_host);
  if (!status.ok()) StoreFailed(expect.buffer, device, Here(status), true);
  return OkStatus();
}

Status Engine::MakeIncoming(uint64_t id, size_t device, const TensorType& type, uint32_t from_host) {
  PW_ASSIGN_OR_RETURN(auto async, client_->CreateAsyncBuffer(type, static_cast<int>(device)));
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, async->TakeBuffer());
  PW_RETURN_IF_ERROR(store_->Insert(id, OneShard(std::move(buffer), device, type.ByteSize())));
  incoming_->Declare(id, std::move(async), from_host);
  return OkStatus();
}

void Engine::StoreFailed(uint64_t id, size_t device, const Status& status, bool tell_client) {
  (void)device;
  auto object = std::make_shared<store::Object>(0);
  object->error = status;
  (void)store_->Insert(id, std::move(object));  // only fails for an id in use, whose value stays
  if (tell_client) Send(wire::BufferFailed{id, status});
}

Result<std::shared_ptr<store::Object>> Engine::FindShard(uint64_t id, uint32_t shard) const {
  auto object = store_->Find(id);
  if (object == nullptr) {
    return Here(NotFound("buffer " + std::to_string(id) + " is not on this host: it was donated to a run or freed"));
  }
  if (!object->error.ok()) return object->error;
  if (shard >= object->shards.size()) return Here(InvalidArgument("buffer has no shard " + std::to_string(shard)));
  return object;
}

void Engine::OnFetch(const wire::Fetch& fetch) {
  const uint64_t request = fetch.request;
  auto fail = [this, request](const Status& status) { Send(wire::Fetched{request, status, 0, {}}); };
  Result<std::shared_ptr<store::Object>> object = FindShard(fetch.buffer, fetch.shard);
  if (!object.ok()) return fail(object.status());
  const pjrt::Buffer& buffer = (*object)->shards[fetch.shard].buffer;
  const uint64_t size = static_cast<uint64_t>(buffer.type().ByteSize());

  if (fetch.metadata_only || size == 0) {
    Result<pjrt::EventHandle> ready = buffer.ReadyEvent();
    if (!ready.ok()) return fail(Here(ready.status()));
    ready->OnReady(
        [this, request](Status status) { Send(wire::Fetched{request, status.ok() ? status : Here(status), 0, {}}); });
    return;
  }
  if (size <= wire::kMaxInlineBytes) {
    auto bytes = std::make_shared<std::string>(size, '\0');
    // The plugin keeps the source alive until it has copied.
    buffer.ToHost(bytes->data(), size, [this, request, bytes](Status status) {
      wire::Fetched answer;
      answer.request = request;
      if (status.ok()) {
        answer.size = bytes->size();
        answer.inline_data = std::move(*bytes);
      } else {
        answer.status = Here(status);
      }
      Send(answer);
    });
    return;
  }
  SendShard(dataplane::DataPlane::PeerOfClient(static_cast<uint32_t>(wire::ClientOf(request))), request,
            *std::move(object), fetch.shard, fail);
}

void Engine::OnCopy(const wire::Copy& copy) {
  Result<size_t> local = LocalDevice(copy.destination_device);
  Result<std::shared_ptr<store::Object>> source = FindShard(copy.source, copy.source_shard);
  if (local.ok()) {
    Status status = source.ok() ? CopyHere(copy, *source) : source.status();
    if (!status.ok()) StoreFailed(copy.destination, *local, status, true);
    return;
  }
  const wire::HostDescription* to = nullptr;
  for (const wire::HostDescription& host : hosts_) {
    if (copy.destination_device >= host.first_device &&
        copy.destination_device - host.first_device < host.devices.size()) {
      to = &host;
    }
  }
  if (to == nullptr || !to->alive) return;  // its client hears of the lost host from the controller
  const std::string peer = dataplane::DataPlane::PeerOfHost(to->name);
  if (Status status = data_->ConnectTo(to->name, to->data_endpoint, to->machine); !status.ok()) {
    Send(wire::BufferFailed{copy.destination, Here(status)});
    return;
  }
  const uint64_t key = copy.destination;
  auto fail = [this, peer, key](const Status& status) { data_->SendFailure(peer, key, status); };
  if (!source.ok()) return fail(source.status());
  if ((*source)->shards[copy.source_shard].bytes == 0) return;  // nothing to send: the receiver has made it
  SendShard(peer, key, *std::move(source), copy.source_shard, fail);
}

Status Engine::CopyHere(const wire::Copy& copy, const std::shared_ptr<store::Object>& source) {
  PW_ASSIGN_OR_RETURN(size_t device, LocalDevice(copy.destination_device));
  const store::Object::Shard& from = source->shards[copy.source_shard];
  PW_RETURN_IF_ERROR(Here(store_->account().Check(device, from.bytes, 0, "a copy of " + copy.type.ToString())));
  if (from.device != device) {
    PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, from.buffer.CopyToDevice(static_cast<int>(device)));
    return store_->Insert(copy.destination, OneShard(std::move(buffer), device, from.bytes));
  }
  // The plugin refuses to copy to the same device; go through host memory.
  PW_ASSIGN_OR_RETURN(auto unique, client_->CreateAsyncBuffer(copy.type, static_cast<int>(device)));
  std::shared_ptr<pjrt::AsyncBuffer> async = std::move(unique);
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, async->TakeBuffer());
  PW_RETURN_IF_ERROR(store_->Insert(copy.destination, OneShard(std::move(buffer), device, from.bytes)));
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
  return OkStatus();
}

// Sends one shard's bytes when they exist: from the device's memory where that is host memory, else through a copy.
void Engine::SendShard(const std::string& peer, uint64_t key, std::shared_ptr<store::Object> object, uint32_t shard,
                       std::function<void(const Status&)> on_error) {
  auto pin = std::make_shared<Pin>(std::move(object), shard);
  Result<pjrt::EventHandle> ready = pin->buffer().ReadyEvent();
  if (!ready.ok()) return on_error(Here(ready.status()));
  ready->OnReady([this, peer, key, pin, on_error](Status status) {
    if (!status.ok()) return on_error(Here(status));
    const size_t size = static_cast<size_t>(pin->buffer().type().ByteSize());
    Result<const void*> pointer = pin->buffer().HostPointer();
    if (pointer.ok()) {
      data_->Send(peer, key, *pointer, size, [pin](const Status&) {});
      return;
    }
    auto bytes = std::make_shared<HostMemory>(size);
    pin->buffer().ToHost(bytes->data(), size, [this, peer, key, pin, bytes, size, on_error](Status copied) {
      if (!copied.ok()) return on_error(Here(copied));
      data_->Send(peer, key, bytes->data(), size, [bytes](const Status&) {});
    });
  });
}

}  // namespace pathways::worker
