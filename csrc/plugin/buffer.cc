// Buffers: making them, and what can be asked of them. Moving their bytes is in transfer.cc.
#include "csrc/plugin/buffer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "csrc/plugin/adopt.h"
#include "csrc/plugin/entry.h"
#include "csrc/plugin/error.h"
#include "csrc/plugin/event.h"
#include "csrc/plugin/host_layout.h"
#include "csrc/plugin/recorder.h"
#include "csrc/plugin/resident.h"

PJRT_Buffer::PJRT_Buffer(std::shared_ptr<pathways::plugin::Value> of)
    : client(of->client()),
      device(of->device()),
      array_type(of->array_type()),
      type(array_type->type),
      cell(std::make_shared<pathways::plugin::BufferCell>(std::move(of))) {
  client->live().Add(this);
}

PJRT_Buffer::~PJRT_Buffer() {
  client->live().Remove(this);
  Drop();
}

pathways::Result<std::shared_ptr<pathways::plugin::Value>> PJRT_Buffer::Get() const {
  if (std::shared_ptr<pathways::plugin::Value> value = cell->value()) return value;
  return pathways::InvalidArgument("the buffer " + type.ToString() + " on " + device->description.to_string +
                                   " was deleted or donated");
}

namespace pathways::plugin {
namespace {

thread_local std::vector<std::shared_ptr<Value>> next_uploads;  // the last one first
thread_local CellWatch* watch = nullptr;
thread_local std::optional<std::vector<Declared>> declaring;
thread_local UploadLayout upload_layout;

Result<std::shared_ptr<Value>> Adopt(std::shared_ptr<Value> value, const TensorType& type, PJRT_Device* device) {
  if (value->type() == type && value->device() == device) return value;
  return InvalidArgument("the adopted value is " + value->type().ToString() + " on " +
                         value->device()->description.to_string + ", but " + type.ToString() + " on " +
                         device->description.to_string + " was asked for");
}

// The tile of a dense, row-major tensor, padded to a whole shard with whatever stands there.
std::vector<char> TileOf(const TensorType& type, const Tiling& tiling, uint32_t tile, const void* dense) {
  const TensorType shard = tiling.ShardType(type);
  const Tiling::Box box = tiling.BoxOf(type, tile);
  std::vector<char> bytes(static_cast<size_t>(shard.ByteSize()));
  if (box.is_empty()) return bytes;
  const ByteStrides strides = RowMajorStrides(type);
  int64_t offset = 0;
  for (size_t i = 0; i < strides.size(); ++i) offset += box.start[i] * strides[i];
  CopyElements({type.dtype, box.size}, static_cast<const char*>(dense) + offset, strides, bytes.data(),
               RowMajorStrides(shard));
  return bytes;
}

Result<std::shared_ptr<Value>> Upload(const PJRT_Client_BufferFromHostBuffer_Args* args, const TensorType& type,
                                      PJRT_Device* device) {
  const std::shared_ptr<ClientState>& client = args->client->state;
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  const TilingPtr tiling = UploadTiling(type, devices->size());
  if (declaring) {
    const TensorType shard = tiling == nullptr ? type : tiling->ShardType(type);
    PW_ASSIGN_OR_RETURN(auto buffer, client->session()->buffers().Announce(*devices, shard));
    declaring->push_back({device->description.id, *devices, buffer->id(), type.dims, tiling});
    auto value = std::make_shared<Value>(client, device, std::make_shared<const ArrayType>(type), tiling, devices);
    value->Resolve(client::Shard{std::move(buffer), 0});
    return value;
  }
  const void* data = args->data;
  if (data == nullptr && type.ByteSize() > 0) return InvalidArgument("the data of " + type.ToString() + " is null");
  std::vector<char> dense;
  if (args->byte_strides != nullptr && type.ElementCount() > 0) {
    if (args->num_byte_strides != type.dims.size()) {
      return InvalidArgument("expected " + std::to_string(type.dims.size()) + " byte strides for " + type.ToString() +
                             ", got " + std::to_string(args->num_byte_strides));
    }
    const std::span<const int64_t> strides(args->byte_strides, args->num_byte_strides);
    if (!IsRowMajor(type, strides)) {
      dense.resize(static_cast<size_t>(type.ByteSize()));
      CopyElements(type, data, strides, dense.data(), RowMajorStrides(type));
      data = dense.data();
    }
  }
  PW_ASSIGN_OR_RETURN(std::shared_ptr<Value> value, UploadValue(client, device, type, data, tiling));
  if (Recorder::active()) Recorder::Note(RecordedUpload{value, Digest(data, static_cast<size_t>(type.ByteSize()))});
  return value;
}

}  // namespace

UploadLayout SetUploadLayout(UploadLayout layout) { return std::exchange(upload_layout, std::move(layout)); }

TilingPtr UploadTiling(const TensorType& type, size_t devices) {
  if (devices == 1) return nullptr;
  const size_t rank = type.dims.size();
  const TilingPtr& wanted = upload_layout.tiling;
  if (upload_layout.kind == UploadLayout::Kind::kTiling && wanted->rank() == rank &&
      wanted->device_count() == devices) {
    return wanted;
  }
  const bool divides = rank > 0 && type.dims[0] > 0 && type.dims[0] % static_cast<int64_t>(devices) == 0;
  const bool copy = upload_layout.kind == UploadLayout::Kind::kCopy || !divides;
  return Intern(copy ? Tiling::Replicated(rank, devices) : Tiling::FirstDimension(rank, devices));
}

Result<std::shared_ptr<Value>> UploadValue(const std::shared_ptr<ClientState>& client, PJRT_Device* device,
                                           const TensorType& type, const void* dense, const TilingPtr& tiling) {
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  std::shared_ptr<Value> value;
  if (tiling == nullptr) {
    PW_ASSIGN_OR_RETURN(client::Shard shard, client->session()->buffers().Put(devices->front(), type, dense));
    value = std::make_shared<Value>(client, device, std::move(shard));
  } else {
    if (tiling->device_count() != devices->size() || tiling->rank() != type.dims.size()) {
      return InvalidArgument("expected a tiling over " + std::to_string(devices->size()) + " devices for " +
                             type.ToString() + ", got " + tiling->ToString());
    }
    // Rows that lie together are sent from where they are.
    const std::span<const int64_t> parts = tiling->parts();
    const bool in_rows = tiling->Divides(type.dims) && (parts.empty() || tiling->tile_count() == parts[0]);
    const int64_t tile_bytes = tiling->ShardType(type).ByteSize();
    std::vector<std::vector<char>> tiles(in_rows ? 0 : static_cast<size_t>(tiling->tile_count()));
    for (uint32_t i = 0; i < tiles.size(); ++i) tiles[i] = TileOf(type, *tiling, i, dense);
    std::vector<const void*> data;
    for (const uint32_t tile : tiling->tiles()) {
      data.push_back(in_rows ? static_cast<const char*>(dense) + tile * tile_bytes : tiles[tile].data());
    }
    PW_ASSIGN_OR_RETURN(auto buffer, client->session()->buffers().PutSharded(*devices, tiling->ShardType(type), data));
    value = std::make_shared<Value>(client, device, std::make_shared<const ArrayType>(type), tiling, devices);
    value->Resolve(client::Shard{std::move(buffer), 0});
  }
  if (type.dims.empty()) value->KeepScalar(dense, static_cast<size_t>(type.ByteSize()));
  return value;
}

BufferCell::BufferCell(std::shared_ptr<Value> value) : value_(std::move(value)) { value_->AddHolder(); }

std::shared_ptr<Value> BufferCell::value() const {
  for (;;) {
    View view = Look();
    if (view.value != nullptr || view.home == nullptr) return std::move(view.value);
    view.home->CheckOut(view.place);
  }
}

bool BufferCell::is_empty() const {
  std::lock_guard lock(mutex_);
  return value_ == nullptr && home_ == nullptr;
}

Status CheckTakes(const std::shared_ptr<BufferCell>& cell) {
  if (cell != nullptr && !cell->is_empty()) return OkStatus();
  return FailedPrecondition("a tensor that a captured step writes lies in other memory than when it was bound");
}

BufferCell::View BufferCell::Look() const {
  std::lock_guard lock(mutex_);
  return {value_, home_, place_};
}

bool BufferCell::Replace(std::shared_ptr<Value> value) {
  std::shared_ptr<Residents> home;
  size_t place;
  {
    std::lock_guard lock(mutex_);
    if (value_ == nullptr && home_ == nullptr) return false;
    value->AddHolder();
    value_.swap(value);
    home_.swap(home);
    place = place_;
  }
  if (value != nullptr) value->DropHolder();
  if (home != nullptr) home->CellChanged(place);
  return true;
}

bool BufferCell::Drop() {
  std::shared_ptr<Value> dropped;
  std::shared_ptr<Residents> home;
  size_t place;
  {
    std::lock_guard lock(mutex_);
    dropped.swap(value_);
    home_.swap(home);
    place = place_;
  }
  if (dropped != nullptr) dropped->DropHolder();
  if (home != nullptr) home->CellChanged(place);
  return dropped != nullptr || home != nullptr;
}

bool BufferCell::Reside(std::shared_ptr<Residents> home, size_t place, const Value* before) {
  std::shared_ptr<Value> dropped;
  std::shared_ptr<Residents> left;
  size_t left_place;
  {
    std::lock_guard lock(mutex_);
    if (value_ == nullptr && home_ == nullptr) return false;
    if (before != nullptr && value_.get() != before) return false;
    if (value_ == nullptr && home_ == home) return false;
    dropped.swap(value_);
    left.swap(home_);
    left_place = std::exchange(place_, place);
    home_ = std::move(home);
  }
  if (dropped != nullptr) dropped->DropHolder();
  if (left != nullptr) left->CellLeft(left_place);
  return true;
}

void StartDeclaring() { declaring.emplace(); }

std::vector<Declared> StopDeclaring() {
  std::vector<Declared> declared;
  if (declaring) declared.swap(*declaring);
  declaring.reset();
  return declared;
}

bool BufferCell::Watch(const std::shared_ptr<Residents>& home, size_t place, const Value* before) {
  std::shared_ptr<Residents> left;
  size_t left_place;
  {
    std::lock_guard lock(mutex_);
    if (value_ == nullptr || value_.get() != before) return false;
    left.swap(home_);
    left_place = std::exchange(place_, place);
    home_ = home;
  }
  if (left != nullptr && left != home) left->CellLeft(left_place);
  return true;
}

void BufferCell::Settle(const Residents* home, std::shared_ptr<Value> value) {
  std::shared_ptr<Residents> left;
  std::lock_guard lock(mutex_);
  if (home_.get() != home || value_ != nullptr) return;
  value->AddHolder();
  value_ = std::move(value);
  left.swap(home_);
}

void BufferCell::Leave(const Residents* home) {
  std::shared_ptr<Residents> left;
  std::lock_guard lock(mutex_);
  if (home_.get() == home && value_ != nullptr) left.swap(home_);
}

void BufferCell::Overwrite(std::shared_ptr<Value> value) {
  std::lock_guard lock(mutex_);
  if (value_ == nullptr) return;
  value->AddHolder();
  value_.swap(value);
  value->DropHolder();
}

void LiveBuffers::Add(PJRT_Buffer* buffer) {
  std::lock_guard lock(mutex_);
  buffer->after_ = first_;
  if (first_ != nullptr) first_->before_ = buffer;
  first_ = buffer;
}

void LiveBuffers::Remove(PJRT_Buffer* buffer) {
  std::lock_guard lock(mutex_);
  (buffer->before_ != nullptr ? buffer->before_->after_ : first_) = buffer->after_;
  if (buffer->after_ != nullptr) buffer->after_->before_ = buffer->before_;
}

std::vector<std::shared_ptr<BufferCell>> LiveBuffers::CellsOn(const PJRT_Device* device) {
  std::vector<std::shared_ptr<BufferCell>> cells;
  std::lock_guard lock(mutex_);
  for (const PJRT_Buffer* each = first_; each != nullptr; each = each->after_) {
    if (each->device == device) cells.push_back(each->cell);
  }
  return cells;
}

CellWatch::CellWatch() { watch = this; }

CellWatch::~CellWatch() { watch = nullptr; }

void CellWatch::Note(const std::shared_ptr<BufferCell>& cell) {
  if (std::find(cells_.begin(), cells_.end(), cell) == cells_.end()) cells_.push_back(cell);
}

void SetNextUploads(std::vector<std::shared_ptr<Value>> values) {
  next_uploads.swap(values);
  std::reverse(next_uploads.begin(), next_uploads.end());
  for (const std::shared_ptr<Value>& value : values) value->DropHolder();
}

Status Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args* args) {
  using Args = PJRT_Client_BufferFromHostBuffer_Args;
  PW_ASSIGN_OR_RETURN(PJRT_Device * device, args->client->state->devices().Of(args->device, args->memory));
  PW_ASSIGN_OR_RETURN(const TensorType type, TypeFromC(args->type, args->dims, args->num_dims));
  if (Has(args, &Args::device_layout)) PW_RETURN_IF_ERROR(CheckDeviceLayout(args->device_layout, type));
  std::shared_ptr<Value> adopted;
  if (!next_uploads.empty()) {
    adopted = std::move(next_uploads.back());
    next_uploads.pop_back();
  }
  Result<std::shared_ptr<Value>> value = adopted != nullptr ? Adopt(adopted, type, device) : Upload(args, type, device);
  if (value.ok()) args->buffer = new PJRT_Buffer(*value);
  if (adopted != nullptr) adopted->DropHolder();  // after the handle has its own hold
  PW_RETURN_IF_ERROR(value.status());
  // Put has copied the data, so whatever semantics were asked for, the caller may have its memory back.
  args->done_with_host_buffer = args->client->state->NewEvent(Event::Done(OkStatus()), true);
  return OkStatus();
}

Status Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args* args) {
  const std::shared_ptr<ClientState>& client = args->client->state;
  PW_ASSIGN_OR_RETURN(PJRT_Device * device, client->devices().Of(args->device, args->memory));
  PW_ASSIGN_OR_RETURN(const TensorType type,
                      TypeFromC(args->shape_element_type, args->shape_dims, args->shape_num_dims));
  PW_RETURN_IF_ERROR(CheckDeviceLayout(args->shape_layout, type));
  // Uninitialized means any contents: zeros, so that nothing of another client's memory can be seen.
  const std::vector<char> zeros(static_cast<size_t>(type.ByteSize()));
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  PW_ASSIGN_OR_RETURN(std::shared_ptr<Value> value,
                      UploadValue(client, device, type, zeros.data(), UploadTiling(type, devices->size())));
  args->buffer = new PJRT_Buffer(std::move(value));
  return OkStatus();
}

Status Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args* args) {
  const std::shared_ptr<ClientState>& client = args->client->state;
  PW_ASSIGN_OR_RETURN(PJRT_Device * device, client->devices().Of(nullptr, args->memory));
  PW_ASSIGN_OR_RETURN(const TensorType type,
                      TypeFromC(args->shape_element_type, args->shape_dims, args->shape_num_dims));
  const Status error = StatusFromC(args->error_code, args->error_message, args->error_message_size);
  if (error.ok()) return InvalidArgument("PJRT_Client_CreateErrorBuffer: expected an error, got OK");
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  auto value = std::make_shared<Value>(client, device, std::make_shared<const ArrayType>(type),
                                       UploadTiling(type, devices->size()), devices);
  value->Resolve(error);
  args->buffer = new PJRT_Buffer(std::move(value));
  return OkStatus();
}

Status Buffer_Destroy(PJRT_Buffer_Destroy_Args* args) {
  delete args->buffer;
  return OkStatus();
}

Status Buffer_ElementType(PJRT_Buffer_ElementType_Args* args) {
  args->type = static_cast<PJRT_Buffer_Type>(args->buffer->type.dtype);
  return OkStatus();
}

Status Buffer_Dimensions(PJRT_Buffer_Dimensions_Args* args) {
  args->dims = args->buffer->type.dims.data();
  args->num_dims = args->buffer->type.dims.size();
  return OkStatus();
}

Status Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args* args) {
  args->unpadded_dims = args->buffer->type.dims.data();
  args->num_dims = args->buffer->type.dims.size();
  return OkStatus();
}

Status Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args* args) {
  args->dynamic_dim_indices = nullptr;
  args->num_dynamic_dims = 0;
  return OkStatus();
}

Status Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args* args) {
  PJRT_Buffer_MemoryLayout& layout = args->layout;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled = {};
  layout.tiled.struct_size = sizeof(PJRT_Buffer_MemoryLayout_Tiled);
  layout.tiled.minor_to_major = args->buffer->array_type->minor_to_major.data();
  layout.tiled.minor_to_major_size = args->buffer->array_type->minor_to_major.size();
  return OkStatus();
}

Status Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args* args) {
  args->on_device_size_in_bytes = static_cast<size_t>(args->buffer->type.ByteSize());
  return OkStatus();
}

Status Buffer_Device(PJRT_Buffer_Device_Args* args) {
  PJRT_Device* const executing = AboutToExecuteOn();
  args->device = executing != nullptr ? executing : args->buffer->device;
  return OkStatus();
}

Status Buffer_Memory(PJRT_Buffer_Memory_Args* args) {
  args->memory = args->buffer->device->memories[0];
  return OkStatus();
}

Status Buffer_Delete(PJRT_Buffer_Delete_Args* args) {
  args->buffer->Drop();
  return OkStatus();
}

Status Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args* args) {
  args->is_deleted = args->buffer->cell->is_empty();
  if (watch != nullptr) watch->Note(args->buffer->cell);
  return OkStatus();
}

Status Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args* args) {
  args->is_on_cpu = false;  // not in this process's memory, whatever the workers' platform
  return OkStatus();
}

Status Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args* args) {
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<Value> value, args->buffer->Get());
  args->buffer_pointer = PublishToken(value);
  return OkStatus();
}

Status Buffer_IncreaseExternalReferenceCount(PJRT_Buffer_IncreaseExternalReferenceCount_Args* args) {
  args->buffer->external_references.fetch_add(1);
  return OkStatus();
}

Status Buffer_DecreaseExternalReferenceCount(PJRT_Buffer_DecreaseExternalReferenceCount_Args* args) {
  if (args->buffer->external_references.fetch_sub(1) > 0) return OkStatus();
  args->buffer->external_references.fetch_add(1);
  return InvalidArgument("PJRT_Buffer_DecreaseExternalReferenceCount: the count is already 0");
}

Status Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args*) {
  return Unimplemented(
      "a buffer of the pathways platform lies on another host and has no address in this process; "
      "fetch it, or copy it to another device");
}

}  // namespace pathways::plugin
