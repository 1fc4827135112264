// Buffers: making them, and what can be asked of them. Moving their bytes is in transfer.cc.
#include <algorithm>
#include <utility>

#include "csrc/capture/recorder.h"
#include "csrc/plugin/adopt.h"
#include "csrc/plugin/cell_watch.h"
#include "csrc/plugin/device.h"
#include "csrc/plugin/entry.h"
#include "csrc/plugin/error.h"
#include "csrc/plugin/event.h"
#include "csrc/plugin/handles.h"
#include "csrc/values/host_layout.h"
#include "csrc/values/upload.h"

namespace pathways::plugin {
namespace {

thread_local CellWatch* watch = nullptr;

Result<values::ValuePtr> Adopt(values::ValuePtr value, const TensorType& type, PJRT_Device* device) {
  if (value->type() == type && value->device() == device) return value;
  return InvalidArgument("the adopted value is " + value->type().ToString() + " on " +
                         value->device()->description.to_string + ", but " + type.ToString() + " on " +
                         device->description.to_string + " was asked for");
}

Result<values::ValuePtr> Upload(const PJRT_Client_BufferFromHostBuffer_Args* args, const TensorType& type,
                                PJRT_Device* device) {
  const std::shared_ptr<values::ClientState>& client = args->client->state;
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  const TilingPtr tiling = values::UploadTiling(type, devices->size());
  if (Declares()) return Declare(client, device, type, tiling);
  const void* data = args->data;
  if (data == nullptr && type.ByteSize() > 0) return InvalidArgument("the data of " + type.ToString() + " is null");
  std::vector<char> dense;
  if (args->byte_strides != nullptr && type.ElementCount() > 0) {
    if (args->num_byte_strides != type.dims.size()) {
      return InvalidArgument("expected " + std::to_string(type.dims.size()) + " byte strides for " + type.ToString() +
                             ", got " + std::to_string(args->num_byte_strides));
    }
    const std::span<const int64_t> strides(args->byte_strides, args->num_byte_strides);
    if (!values::IsRowMajor(type, strides)) {
      dense.resize(static_cast<size_t>(type.ByteSize()));
      values::CopyElements(type, data, strides, dense.data(), values::RowMajorStrides(type));
      data = dense.data();
    }
  }
  PW_ASSIGN_OR_RETURN(values::ValuePtr value, values::UploadValue(client, device, type, data, tiling));
  if (capture::Recorder::active()) {
    const uint64_t digest = capture::Digest(data, static_cast<size_t>(type.ByteSize()));
    capture::Recorder::Note(capture::RecordedUpload{value, digest});
  }
  return value;
}

}  // namespace

CellWatch::CellWatch() { watch = this; }

CellWatch::~CellWatch() { watch = nullptr; }

void CellWatch::Note(const std::shared_ptr<values::BufferCell>& cell) {
  if (std::find(cells_.begin(), cells_.end(), cell) == cells_.end()) cells_.push_back(cell);
}

Status Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args* args) {
  using Args = PJRT_Client_BufferFromHostBuffer_Args;
  PW_ASSIGN_OR_RETURN(PJRT_Device * device, args->client->state->devices().Of(args->device, args->memory));
  PW_ASSIGN_OR_RETURN(const TensorType type, values::TypeFromC(args->type, args->dims, args->num_dims));
  if (Has(args, &Args::device_layout)) PW_RETURN_IF_ERROR(values::CheckDeviceLayout(args->device_layout, type));
  const values::ValuePtr adopted = TakeNextUpload();
  Result<values::ValuePtr> value = adopted != nullptr ? Adopt(adopted, type, device) : Upload(args, type, device);
  if (value.ok()) args->buffer = new PJRT_Buffer(*value);
  if (adopted != nullptr) adopted->DropHolder();  // after the handle has its own hold
  PW_RETURN_IF_ERROR(value.status());
  // Put has copied the data, so whatever semantics were asked for, the caller may have its memory back.
  args->done_with_host_buffer = NewEvent(*args->client->state, Event::Done(OkStatus()), true);
  return OkStatus();
}

Status Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args* args) {
  const std::shared_ptr<values::ClientState>& client = args->client->state;
  PW_ASSIGN_OR_RETURN(PJRT_Device * device, client->devices().Of(args->device, args->memory));
  PW_ASSIGN_OR_RETURN(const TensorType type,
                      values::TypeFromC(args->shape_element_type, args->shape_dims, args->shape_num_dims));
  PW_RETURN_IF_ERROR(values::CheckDeviceLayout(args->shape_layout, type));
  // Uninitialized means any contents: zeros, so that nothing of another client's memory can be seen.
  const std::vector<char> zeros(static_cast<size_t>(type.ByteSize()));
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  PW_ASSIGN_OR_RETURN(values::ValuePtr value, values::UploadValue(client, device, type, zeros.data(),
                                                                  values::UploadTiling(type, devices->size())));
  args->buffer = new PJRT_Buffer(std::move(value));
  return OkStatus();
}

Status Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args* args) {
  const std::shared_ptr<values::ClientState>& client = args->client->state;
  PW_ASSIGN_OR_RETURN(PJRT_Device * device, client->devices().Of(nullptr, args->memory));
  PW_ASSIGN_OR_RETURN(const TensorType type,
                      values::TypeFromC(args->shape_element_type, args->shape_dims, args->shape_num_dims));
  const Status error = StatusFromC(args->error_code, args->error_message, args->error_message_size);
  if (error.ok()) return InvalidArgument("PJRT_Client_CreateErrorBuffer: expected an error, got OK");
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  auto value = std::make_shared<values::Value>(client, device, std::make_shared<const values::ArrayType>(type),
                                               values::UploadTiling(type, devices->size()), devices);
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
  PW_ASSIGN_OR_RETURN(const values::ValuePtr value, args->buffer->Get());
  args->buffer_pointer = values::PublishToken(value);
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
