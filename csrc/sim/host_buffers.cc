#include "csrc/sim/host_buffers.h"

namespace pathways::sim {
namespace {

constexpr uint32_t kClientSide = UINT32_MAX;  // as the other end of a transfer: no host

}  // namespace

Buffer::~Buffer() {
  if (spilled) return;
  for (const Shard& shard : shards) account->Remove(shard.device - first_device, client, shard.bytes);
}

void Buffer::Add(Shard shard) {
  account->Add(shard.device - first_device, client, shard.bytes);
  shards.push_back(std::move(shard));
}

void Buffer::Fill(size_t position, int64_t bytes, std::shared_ptr<Value> value) {
  Shard& shard = shards[position];
  account->Add(shard.device - first_device, client, bytes - shard.bytes);
  shard.bytes = bytes;
  shard.value = std::move(value);
}

const Shard* Buffer::Find(uint32_t number) const {
  if (!shards.empty() && number >= shards[0].number) {
    const size_t guess = number - shards[0].number;  // as a rule a host holds neighbours
    if (guess < shards.size() && shards[guess].number == number) return &shards[guess];
  }
  for (const Shard& shard : shards) {
    if (shard.number == number) return &shard;
  }
  return nullptr;
}

void Buffer::SetSpilled(bool now) {
  if (spilled == now) return;
  spilled = now;
  for (const Shard& shard : shards) {
    account->Add(shard.device - first_device, client, now ? -shard.bytes : shard.bytes);
  }
}

BufferPtr HostBuffers::Make(uint64_t id) const {
  return std::make_shared<Buffer>(site_.account, site_.first_device, static_cast<uint32_t>(wire::ClientOf(id)));
}

BufferPtr HostBuffers::MakeFailed(const Status& status) const {
  BufferPtr buffer = Make(0);
  buffer->error = status;
  return buffer;
}

void HostBuffers::KeepFailed(uint64_t id, const Status& status, bool tell_client) {
  buffers_.try_emplace(id, MakeFailed(status));
  if (tell_client) site_.Send(wire::BufferFailed{id, status});
}

Result<BufferPtr> HostBuffers::Find(uint64_t id) const {
  auto it = buffers_.find(id);
  if (it == buffers_.end()) {
    return site_.Here(
        NotFound("buffer " + std::to_string(id) + " is not on this host: it was donated to a run or freed"));
  }
  if (!it->second->error.ok()) return it->second->error;
  return it->second;
}

Result<const Shard*> HostBuffers::FindShard(const Buffer& buffer, uint32_t number) const {
  const Shard* shard = buffer.Find(number);
  if (shard == nullptr || shard->value == nullptr) {
    return site_.Invalid("shard " + std::to_string(number) + " of a buffer is not on this host");
  }
  return shard;
}

Status HostBuffers::CheckIncoming(uint32_t device, const TensorType& type) const {
  if (!site_.IsLocal(device)) return site_.Invalid("device " + std::to_string(device) + " is not here");
  return site_.CheckMemory(device, type.ByteSize(), "a tensor " + type.ToString());
}

void HostBuffers::On(const wire::Put& put) {
  const Status fits = CheckIncoming(put.device, put.type);
  if (!fits.ok()) return KeepFailed(put.buffer, fits, true);
  const int64_t bytes = put.type.ByteSize();
  BufferPtr& buffer = buffers_[put.buffer];
  if (buffer == nullptr) buffer = Make(put.buffer);
  auto value = std::make_shared<Value>();
  buffer->Add({put.shard, put.device, bytes, value});
  if (static_cast<int64_t>(put.inline_data.size()) == bytes) return value->Settle(site_.world.timeline.now());
  site_.world.network.Upload(site_.index, bytes,
                             [value](int64_t at, const Status& error) { value->Settle(at, error); });
}

void HostBuffers::On(const wire::Fetch& fetch) {
  const uint64_t request = fetch.request;
  const auto fail = [this, request](const Status& status) { site_.Send(wire::Fetched{request, status, 0, {}}); };
  const Result<BufferPtr> buffer = Find(fetch.buffer);
  if (!buffer.ok()) return fail(buffer.status());
  const Result<const Shard*> shard = FindShard(**buffer, fetch.shard);
  if (!shard.ok()) return fail(shard.status());
  const int64_t bytes = fetch.metadata_only ? 0 : (*shard)->bytes;
  (*shard)->value->When([this, request, bytes, fail](const Value& value) {
    if (!value.error().ok()) return fail(value.error());
    const int64_t at = site_.world.network.Transfer(site_.index, kClientSide, value.at(), bytes);
    const auto answer = [this, request, bytes](int64_t) {
      wire::Fetched fetched;
      fetched.request = request;
      fetched.size = static_cast<uint64_t>(bytes);
      if (fetched.size <= wire::kMaxInlineBytes) fetched.inline_data.assign(fetched.size, '\0');
      site_.Send(fetched);
    };
    if (at <= site_.world.timeline.now()) return answer(at);
    site_.world.timeline.At(at, answer);
  });
}

std::shared_ptr<Value> HostBuffers::CopyLocally(const std::shared_ptr<Value>& source, int64_t bytes) const {
  auto copy = std::make_shared<Value>();
  source->When([this, copy, bytes](const Value& value) {
    if (!value.error().ok()) return copy->Settle(value.at(), value.error());
    const int64_t at = site_.world.network.Transfer(site_.index, site_.index, value.at(), bytes);
    site_.world.timeline.At(at, [copy](int64_t when) { copy->Settle(when); });
  });
  return copy;
}

void HostBuffers::On(const wire::Copy& copy) {
  const Result<BufferPtr> buffer = Find(copy.source);
  Status status = buffer.status();
  const Shard* shard = nullptr;
  if (status.ok()) {
    const Result<const Shard*> found = FindShard(**buffer, copy.source_shard);
    status = found.status();
    if (found.ok()) shard = *found;
  }
  if (site_.IsLocal(copy.destination_device)) {
    if (status.ok()) {
      status = site_.CheckMemory(copy.destination_device, shard->bytes, "a copy of " + copy.type.ToString());
    }
    if (!status.ok()) return KeepFailed(copy.destination, status, true);
    BufferPtr target = Make(copy.destination);
    target->Add({0, copy.destination_device, shard->bytes, CopyLocally(shard->value, shard->bytes)});
    buffers_[copy.destination] = std::move(target);
    return;
  }
  if (copy.destination_device >= site_.world.device_to_host.size()) return;
  const uint32_t to = site_.world.device_to_host[copy.destination_device];
  if (to == UINT32_MAX) return;  // lost: its client hears of that from the controller
  site_.world.network.Send(site_.index, to, copy.destination, copy.type.ByteSize(),
                           shard != nullptr ? shard->value : Value::Settled(site_.world.timeline.now(), status));
}

void HostBuffers::On(const wire::Expect& expect) {
  const Status fits = CheckIncoming(expect.device, expect.type);
  if (!fits.ok()) return KeepFailed(expect.buffer, fits, true);
  BufferPtr buffer = Make(expect.buffer);
  auto value = std::make_shared<Value>();
  buffer->Add({0, expect.device, expect.type.ByteSize(), value});
  buffers_[expect.buffer] = std::move(buffer);
  site_.world.network.Receive(expect.from_host, site_.index, expect.buffer,
                              [value](int64_t at, const Status& error) { value->Settle(at, error); });
}

void HostBuffers::On(const wire::Free& request) {
  for (const uint64_t id : request.buffers) buffers_.erase(id);
}

void HostBuffers::SetSpilled(const std::vector<uint64_t>& buffers, bool spilled) {
  for (const uint64_t id : buffers) {
    auto it = buffers_.find(id);
    if (it != buffers_.end()) it->second->SetSpilled(spilled);
  }
}

void HostBuffers::AnswerMemory(uint32_t device, wire::Reply& reply) const {
  if (!site_.IsLocal(device)) {
    reply.status = site_.Invalid("expected a device of this host, got " + std::to_string(device));
    return;
  }
  const size_t local = device - site_.first_device;
  reply.properties = {{"bytes_in_use", 1, "", site_.account->used(local)},
                      {"peak_bytes", 1, "", site_.account->peak(local)},
                      {"limit_bytes", 1, "", site_.account->limit(local)},
                      {"live_buffers", 1, "", static_cast<int64_t>(buffers_.size())}};
}

void HostBuffers::DropClient(uint32_t client) {
  std::erase_if(buffers_, [client](const auto& entry) { return wire::ClientOf(entry.first) == client; });
}

}  // namespace pathways::sim
