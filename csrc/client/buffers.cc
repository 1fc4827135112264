#include "csrc/client/buffers.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace pathways::client {

Result<Shard> Buffers::Put(uint32_t device, const TensorType& type, const void* data) {
  PW_ASSIGN_OR_RETURN(auto buffer, Make({device}, type, {&data, 1}));
  return Shard{std::move(buffer), 0};
}

Result<std::shared_ptr<LogicalBuffer>> Buffers::PutSharded(const std::vector<uint32_t>& devices, const TensorType& type,
                                                           std::span<const void* const> data) {
  if (devices.size() != data.size()) {
    return InvalidArgument("expected one value for each device, got " + std::to_string(data.size()) + " values for " +
                           std::to_string(devices.size()) + " devices");
  }
  return Make(devices, type, data);
}

Result<std::shared_ptr<LogicalBuffer>> Buffers::Announce(const std::vector<uint32_t>& devices, const TensorType& type) {
  return Make(devices, type, {});
}

Result<std::shared_ptr<LogicalBuffer>> Buffers::Make(const std::vector<uint32_t>& devices, const TensorType& type,
                                                     std::span<const void* const> data) {
  PW_RETURN_IF_ERROR(type.Validate());
  if (devices.empty()) return InvalidArgument("expected at least one device for a buffer, got none");
  std::vector<uint32_t> hosts;
  std::map<uint32_t, uint32_t> shards_of_host;
  for (const uint32_t device : devices) {
    PW_ASSIGN_OR_RETURN(const uint32_t host, core_.HostOf(device));
    hosts.push_back(host);
    ++shards_of_host[host];
  }
  const uint64_t id = core_.MintIds(devices.size());
  auto buffer = std::make_shared<LogicalBuffer>(core_.Keep(), id, devices, type, nullptr);
  core_.SendReleases();  // what was dropped before makes room for this
  const size_t size = static_cast<size_t>(type.ByteSize());
  std::shared_ptr<HostMemory> copy;  // of copied_from; replicas are copied once
  const void* copied_from = nullptr;
  for (size_t i = 0; i < devices.size(); ++i) {
    wire::Put put;
    put.buffer = id;
    put.key = id + i;
    put.shard = static_cast<uint32_t>(i);
    put.shards_here = shards_of_host[hosts[i]];
    put.device = devices[i];
    put.type = type;
    const bool is_inline = !data.empty() && size <= wire::kMaxInlineBytes;
    if (is_inline) put.inline_data.assign(static_cast<const char*>(data[i]), size);
    PW_RETURN_IF_ERROR(core_.Send(put));
    if (data.empty()) continue;
    if (is_inline) {
      transfers_.CountUpload(size);
      continue;
    }
    if (copy == nullptr || data[i] != copied_from) copy = transfers_.Copy(data[i], size);
    copied_from = data[i];
    transfers_.Upload(put.key, hosts[i], copy);
  }
  return buffer;
}

Result<Shard> Buffers::Declare(uint32_t device, const TensorType& type) {
  PW_ASSIGN_OR_RETURN(auto buffer, Make({device}, type, {}));
  if (type.ByteSize() > 0) {
    auto bytes = std::make_shared<HostMemory>(HostMemory::Zeroed(static_cast<size_t>(type.ByteSize())));
    std::lock_guard lock(core_.mutex);
    declared_[buffer->id()] = std::move(bytes);
  }
  return Shard{std::move(buffer), 0};
}

Status Buffers::Fill(const Shard& shard, uint64_t offset, const void* data, uint64_t size, bool last) {
  const uint64_t id = shard.buffer->id();
  PW_ASSIGN_OR_RETURN(const uint32_t host, core_.HostOf(shard.device()));
  std::shared_ptr<HostMemory> complete;
  {
    std::lock_guard lock(core_.mutex);
    const auto it = declared_.find(id);
    if (it == declared_.end()) {
      if (size == 0 && shard.type().ByteSize() == 0) return OkStatus();
      return FailedPrecondition("expected a buffer that still waits for bytes, got one that is filled or failed");
    }
    HostMemory& bytes = *it->second;
    if (offset > bytes.size() || size > bytes.size() - offset) {
      return InvalidArgument("expected bytes within " + shard.type().ToString() + " (" + std::to_string(bytes.size()) +
                             " bytes), got " + std::to_string(offset) + " to " + std::to_string(offset + size));
    }
    std::memcpy(bytes.data() + offset, data, size);
    if (last) {
      complete = std::move(it->second);
      declared_.erase(it);
    }
  }
  if (complete) transfers_.Upload(id, host, complete);
  return OkStatus();
}

Status Buffers::Fail(const Shard& shard, const Status& status) {
  const uint64_t id = shard.buffer->id();
  PW_ASSIGN_OR_RETURN(const uint32_t host, core_.HostOf(shard.device()));
  {
    std::lock_guard lock(core_.mutex);
    if (declared_.erase(id) == 0) return FailedPrecondition("the buffer is filled or failed already");
    core_.failed_buffers[id] = status;
  }
  transfers_.FailUpload(id, host, status);
  return OkStatus();
}

Result<Shard> Buffers::Copy(const Shard& source, uint32_t device) {
  PW_RETURN_IF_ERROR(core_.HostOf(source.device()).status());
  PW_RETURN_IF_ERROR(core_.HostOf(device).status());
  wire::Copy copy;
  copy.source = source.buffer->id();
  copy.source_shard = source.index;
  copy.source_device = source.device();
  copy.destination = core_.MintIds();
  copy.destination_device = device;
  copy.type = source.type();
  Shard shard{std::make_shared<LogicalBuffer>(core_.Keep(), copy.destination, std::vector<uint32_t>{device},
                                              source.type(), nullptr),
              0};
  core_.SendReleases();
  PW_RETURN_IF_ERROR(core_.Send(copy));
  copies_ += 1;
  return shard;
}

void Buffers::Drop(const LogicalBuffer& buffer) noexcept {
  bool full = false;
  {
    std::lock_guard lock(core_.mutex);
    if (core_.closed) return;
    core_.failed_buffers.erase(buffer.id());
    declared_.erase(buffer.id());
    full = core_.releases.Free(buffer.id(), static_cast<uint64_t>(buffer.shard_type().ByteSize()), buffer.devices(),
                               core_.hosts);
  }
  if (full) core_.SendReleases();
}

void Buffers::OnFailed(const wire::BufferFailed& failed) {
  std::lock_guard lock(core_.mutex);
  core_.failed_buffers[failed.buffer] = failed.status;
}

}  // namespace pathways::client
