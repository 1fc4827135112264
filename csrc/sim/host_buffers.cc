// Host: buffers. What comes in, goes out or moves, as types and times.
#include "csrc/sim/host.h"

namespace pathways::sim {
namespace {

constexpr uint32_t kClientSide = UINT32_MAX;  // as the other end of a transfer: no host

}  // namespace

Host::Buffer::~Buffer() {
  if (spilled) return;
  for (const Shard& shard : shards) account->Remove(shard.device - first_device, client, shard.bytes);
}

void Host::Buffer::Add(Shard shard) {
  account->Add(shard.device - first_device, client, shard.bytes);
  shards.push_back(std::move(shard));
}

void Host::Buffer::Fill(size_t position, int64_t bytes, std::shared_ptr<Value> value) {
  Shard& shard = shards[position];
  account->Add(shard.device - first_device, client, bytes - shard.bytes);
  shard.bytes = bytes;
  shard.value = std::move(value);
}

const Host::Shard* Host::Buffer::Find(uint32_t number) const {
  if (!shards.empty() && number >= shards[0].number) {
    const size_t guess = number - shards[0].number;  // as a rule a host holds neighbours
    if (guess < shards.size() && shards[guess].number == number) return &shards[guess];
  }
  for (const Shard& shard : shards) {
    if (shard.number == number) return &shard;
  }
  return nullptr;
}

void Host::Buffer::SetSpilled(bool now) {
  if (spilled == now) return;
  spilled = now;
  for (const Shard& shard : shards) {
    account->Add(shard.device - first_device, client, now ? -shard.bytes : shard.bytes);
  }
}

Host::BufferPtr Host::MakeBuffer(uint64_t id) const {
  return std::make_shared<Buffer>(account_, first_device_, static_cast<uint32_t>(wire::ClientOf(id)));
}

Host::BufferPtr Host::FailedBuffer(const Status& status) const {
  BufferPtr buffer = MakeBuffer(0);
  buffer->error = status;
  return buffer;
}

void Host::KeepFailed(uint64_t id, const Status& status, bool tell_client) {
  buffers_.try_emplace(id, FailedBuffer(status));
  if (tell_client) Send(wire::BufferFailed{id, status});
}

Result<Host::BufferPtr> Host::FindBuffer(uint64_t id) const {
  auto it = buffers_.find(id);
  if (it == buffers_.end()) {
    return Here(NotFound("buffer " + std::to_string(id) + " is not on this host: it was donated to a run or freed"));
  }
  if (!it->second->error.ok()) return it->second->error;
  return it->second;
}

Result<const Host::Shard*> Host::FindShard(const Buffer& buffer, uint32_t number) const {
  const Shard* shard = buffer.Find(number);
  if (shard == nullptr || shard->value == nullptr) {
    return Here(InvalidArgument("shard " + std::to_string(number) + " of a buffer is not on this host"));
  }
  return shard;
}

void Host::OnPut(const wire::Put& put) {
  if (!IsLocal(put.device)) {
    return KeepFailed(put.buffer, Here(InvalidArgument("device " + std::to_string(put.device) + " is not here")), true);
  }
  const int64_t bytes = put.type.ByteSize();
  const Status fits = account_->Check(put.device - first_device_, bytes, 0, "a tensor " + put.type.ToString());
  if (!fits.ok()) return KeepFailed(put.buffer, Here(fits), true);
  BufferPtr& buffer = buffers_[put.buffer];
  if (buffer == nullptr) buffer = MakeBuffer(put.buffer);
  auto value = std::make_shared<Value>();
  buffer->Add({put.shard, put.device, bytes, value});
  if (static_cast<int64_t>(put.inline_data.size()) == bytes) return value->Settle(world_->timeline.now());
  world_->network.Upload(index_, bytes, [value](int64_t at, const Status& error) { value->Settle(at, error); });
}

void Host::OnFetch(const wire::Fetch& fetch) {
  const uint64_t request = fetch.request;
  const auto fail = [this, request](const Status& status) { Send(wire::Fetched{request, status, 0, {}}); };
  const Result<BufferPtr> buffer = FindBuffer(fetch.buffer);
  if (!buffer.ok()) return fail(buffer.status());
  const Result<const Shard*> shard = FindShard(**buffer, fetch.shard);
  if (!shard.ok()) return fail(shard.status());
  const int64_t bytes = fetch.metadata_only ? 0 : (*shard)->bytes;
  (*shard)->value->When([this, request, bytes, fail](const Value& value) {
    if (!value.error().ok()) return fail(value.error());
    const int64_t at = world_->network.Transfer(index_, kClientSide, value.at(), bytes);
    const auto answer = [this, request, bytes](int64_t) {
      wire::Fetched fetched;
      fetched.request = request;
      fetched.size = static_cast<uint64_t>(bytes);
      if (fetched.size <= wire::kMaxInlineBytes) fetched.inline_data.assign(fetched.size, '\0');
      Send(fetched);
    };
    if (at <= world_->timeline.now()) return answer(at);
    world_->timeline.At(at, answer);
  });
}

std::shared_ptr<Value> Host::CopyLocally(const std::shared_ptr<Value>& source, int64_t bytes) {
  auto copy = std::make_shared<Value>();
  source->When([this, copy, bytes](const Value& value) {
    if (!value.error().ok()) return copy->Settle(value.at(), value.error());
    const int64_t at = world_->network.Transfer(index_, index_, value.at(), bytes);
    world_->timeline.At(at, [copy](int64_t when) { copy->Settle(when); });
  });
  return copy;
}

void Host::OnCopy(const wire::Copy& copy) {
  const Result<BufferPtr> buffer = FindBuffer(copy.source);
  Status status = buffer.status();
  const Shard* shard = nullptr;
  if (status.ok()) {
    const Result<const Shard*> found = FindShard(**buffer, copy.source_shard);
    status = found.status();
    if (found.ok()) shard = *found;
  }
  if (IsLocal(copy.destination_device)) {
    if (status.ok()) {
      status = Here(account_->Check(copy.destination_device - first_device_, shard->bytes, 0,
                                    "a copy of " + copy.type.ToString()));
    }
    if (!status.ok()) return KeepFailed(copy.destination, status, true);
    BufferPtr target = MakeBuffer(copy.destination);
    target->Add({0, copy.destination_device, shard->bytes, CopyLocally(shard->value, shard->bytes)});
    buffers_[copy.destination] = std::move(target);
    return;
  }
  if (copy.destination_device >= world_->device_to_host.size()) return;
  const uint32_t to = world_->device_to_host[copy.destination_device];
  if (to == UINT32_MAX) return;  // lost: its client hears of that from the controller
  world_->network.Send(index_, to, copy.destination, copy.type.ByteSize(),
                       shard != nullptr ? shard->value : Value::Settled(world_->timeline.now(), status));
}

void Host::OnExpect(const wire::Expect& expect) {
  if (!IsLocal(expect.device)) {
    return KeepFailed(expect.buffer, Here(InvalidArgument("device " + std::to_string(expect.device) + " is not here")),
                      true);
  }
  const int64_t bytes = expect.type.ByteSize();
  const Status fits = account_->Check(expect.device - first_device_, bytes, 0, "a tensor " + expect.type.ToString());
  if (!fits.ok()) return KeepFailed(expect.buffer, Here(fits), true);
  BufferPtr buffer = MakeBuffer(expect.buffer);
  auto value = std::make_shared<Value>();
  buffer->Add({0, expect.device, bytes, value});
  buffers_[expect.buffer] = std::move(buffer);
  world_->network.Receive(expect.from_host, index_, expect.buffer,
                          [value](int64_t at, const Status& error) { value->Settle(at, error); });
}

void Host::OnSpill(const std::vector<uint64_t>& buffers, bool spill) {
  for (const uint64_t id : buffers) {
    auto it = buffers_.find(id);
    if (it != buffers_.end()) it->second->SetSpilled(spill);
  }
}

}  // namespace pathways::sim
