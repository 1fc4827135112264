#include "csrc/plugin/adopt.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "csrc/capture/recorder.h"
#include "csrc/values/transfer.h"

namespace pathways::plugin {
namespace {

thread_local std::vector<values::ValuePtr> next_uploads;  // the last one first
thread_local std::optional<std::vector<Declared>> declaring;

// Takes over the holds on the values, and drops those on the ones before.
void SetNextUploads(std::vector<values::ValuePtr> values) {
  next_uploads.swap(values);
  std::reverse(next_uploads.begin(), next_uploads.end());
  for (const values::ValuePtr& value : values) value->DropHolder();
}

}  // namespace

Result<uint64_t> Transfer(uint64_t token, int64_t device_id) {
  const values::ValuePtr value = values::FindToken(token);
  if (value == nullptr) {
    return NotFound("token " + std::to_string(token) + " names no live buffer; it was deleted, donated or never given");
  }
  PJRT_Device* const device = value->client()->devices().Find(device_id);
  if (device == nullptr) {
    return InvalidArgument("expected a device id below " + std::to_string(value->client()->devices().all().size()) +
                           ", got " + std::to_string(device_id));
  }
  values::ValuePtr result = value;  // already there: the same value, which nobody may donate now
  if (device != value->device()) {
    PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
    if (value->tiling() != nullptr || devices->size() > 1) {
      return Unimplemented("a copy to or from a slice of several devices needs a plan");
    }
    PW_ASSIGN_OR_RETURN(result, values::CopyValue(value, device));
    if (capture::Recorder::active()) capture::Recorder::Note(capture::RecordedCopy{value, result});
  }
  values::ClaimToken(result);
  return result->token();
}

Result<uint64_t> AdoptBuffer(std::shared_ptr<client::LogicalBuffer> buffer, int64_t device_id,
                             std::vector<int64_t> dims, TilingPtr tiling, uint64_t source, bool kept) {
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<values::ClientState> client, values::LogicalClient());
  PJRT_Device* const device = client->devices().Find(device_id);
  if (device == nullptr) return InvalidArgument("there is no device xla:" + std::to_string(device_id));
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  const TensorType type{buffer->shard_type().dtype, std::move(dims)};
  PW_RETURN_IF_ERROR(type.Validate());
  if (buffer->devices() != *devices || (tiling == nullptr) != (devices->size() == 1) ||
      buffer->shard_type() != (tiling == nullptr ? type : tiling->ShardType(type))) {
    return FailedPrecondition("a buffer of shards " + buffer->shard_type().ToString() + " is not a tensor " +
                              type.ToString() + " on " + device->description.to_string +
                              (tiling == nullptr ? "" : " laid out as " + tiling->ToString()));
  }
  auto value = std::make_shared<values::Value>(client, device, std::make_shared<const values::ArrayType>(type),
                                               std::move(tiling), devices);
  value->Resolve(client::Shard{std::move(buffer), 0});
  if (kept) value->Keep();
  if (capture::Recorder::active() && source != 0) {
    const values::ValuePtr from = values::FindToken(source);
    if (from != nullptr) capture::Recorder::Note(capture::RecordedCopy{from, value});
  }
  values::ClaimToken(value);
  return value->token();
}

Status AdoptNextUploads(std::span<const uint64_t> tokens) {
  SetNextUploads({});
  std::vector<values::ValuePtr> values;
  for (const uint64_t token : tokens) {
    values::ValuePtr value = values::ReleaseClaim(token);
    if (value == nullptr) {
      SetNextUploads(std::move(values));
      SetNextUploads({});  // drops the others' holds
      return NotFound("token " + std::to_string(token) + " owns nothing to adopt; it was adopted or released before");
    }
    values.push_back(std::move(value));
  }
  SetNextUploads(std::move(values));
  return OkStatus();
}

values::ValuePtr TakeNextUpload() {
  if (next_uploads.empty()) return nullptr;
  values::ValuePtr value = std::move(next_uploads.back());
  next_uploads.pop_back();
  return value;
}

void StartDeclaring() { declaring.emplace(); }

std::vector<Declared> StopDeclaring() {
  std::vector<Declared> declared;
  if (declaring) declared.swap(*declaring);
  declaring.reset();
  return declared;
}

bool Declares() { return declaring.has_value(); }

Result<values::ValuePtr> Declare(const std::shared_ptr<values::ClientState>& client, PJRT_Device* device,
                                 const TensorType& type, const TilingPtr& tiling) {
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  const TensorType shard = tiling == nullptr ? type : tiling->ShardType(type);
  PW_ASSIGN_OR_RETURN(auto buffer, client->session()->buffers().Announce(*devices, shard));
  declaring->push_back({device->description.id, *devices, buffer->id(), type.dims, tiling});
  auto value =
      std::make_shared<values::Value>(client, device, std::make_shared<const values::ArrayType>(type), tiling, devices);
  value->Resolve(client::Shard{std::move(buffer), 0});
  return value;
}

}  // namespace pathways::plugin
