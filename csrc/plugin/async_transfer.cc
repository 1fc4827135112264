// PJRT_AsyncHostToDeviceTransferManager: buffers whose bytes the caller brings later, piece by piece.
//
// Ownership: the caller's, until Destroy. Buffers retrieved from it live on; those never filled fail then.
// Threads:   every slot may be called from any thread, one transfer per buffer at a time.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/base/thread_annotations.h"
#include "csrc/plugin/entry.h"
#include "csrc/plugin/error.h"
#include "csrc/plugin/event.h"
#include "csrc/plugin/handles.h"
#include "csrc/values/buffer.h"
#include "csrc/values/host_layout.h"

struct PJRT_AsyncHostToDeviceTransferManager {
  struct State {
    bool retrieved = false;
    bool finished = false;  // filled, or failed
  };
  PJRT_AsyncHostToDeviceTransferManager(std::shared_ptr<pathways::values::ClientState> of, PJRT_Device* on,
                                        std::vector<pathways::values::ValuePtr> to_fill)
      : client(std::move(of)), device(on), values(std::move(to_fill)), states(values.size()) {}
  ~PJRT_AsyncHostToDeviceTransferManager();

  const std::shared_ptr<pathways::values::ClientState> client;
  PJRT_Device* const device;
  const std::vector<pathways::values::ValuePtr> values;
  std::mutex mutex;
  std::vector<State> states PW_GUARDED_BY(mutex);  // of values
};

namespace pathways::plugin {
namespace {

using Manager = PJRT_AsyncHostToDeviceTransferManager;

Status CheckIndex(const Manager& manager, int index) {
  if (index >= 0 && static_cast<size_t>(index) < manager.values.size()) return OkStatus();
  return InvalidArgument("expected a buffer number below " + std::to_string(manager.values.size()) + ", got " +
                         std::to_string(index));
}

// Sends bytes to a buffer that still waits for some.
Status Transfer(Manager& manager, int index, const void* data, int64_t offset, int64_t size, bool last) {
  PW_RETURN_IF_ERROR(CheckIndex(manager, index));
  if (offset < 0 || size < 0 || (data == nullptr && size > 0)) {
    return InvalidArgument("expected bytes at an offset >= 0, got " + std::to_string(size) + " at " +
                           std::to_string(offset));
  }
  std::lock_guard lock(manager.mutex);
  Manager::State& state = manager.states[static_cast<size_t>(index)];
  if (state.finished) return FailedPrecondition("the buffer has had its last transfer, or an error");
  const client::Shard& shard = *manager.values[static_cast<size_t>(index)]->shard();
  PW_RETURN_IF_ERROR(shard.buffer->session()->buffers().Fill(shard, static_cast<uint64_t>(offset), data,
                                                             static_cast<uint64_t>(size), last));
  state.finished = last;
  return OkStatus();
}

}  // namespace
}  // namespace pathways::plugin

PJRT_AsyncHostToDeviceTransferManager::~PJRT_AsyncHostToDeviceTransferManager() {
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].finished || !states[i].retrieved) continue;
    // Whoever uses the buffer must not wait for ever; when the host is lost, its users hear that instead.
    const pathways::client::Shard& shard = *values[i]->shard();
    (void)shard.buffer->session()->buffers().Fail(shard, pathways::Cancelled("its transfer was given up half-way"));
  }
}

namespace pathways::plugin {

Status Client_CreateBuffersForAsyncHostToDevice(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args* args) {
  const std::shared_ptr<values::ClientState>& client = args->client->state;
  PW_ASSIGN_OR_RETURN(PJRT_Device * device, client->devices().Of(nullptr, args->memory));
  if (args->shape_specs == nullptr && args->num_shape_specs > 0) return InvalidArgument("the shapes are null");
  std::vector<values::ValuePtr> to_fill;
  const char* at = reinterpret_cast<const char*>(args->shape_specs);
  for (size_t i = 0; i < args->num_shape_specs; ++i) {
    const auto* spec = reinterpret_cast<const PJRT_ShapeSpec*>(at);
    if (!Has(spec, &PJRT_ShapeSpec::element_type)) return InvalidArgument("a PJRT_ShapeSpec is too short");
    at += sizeof(PJRT_ShapeSpec);  // an array of the caller's structs, all of the size they have had since 0.69
    PW_ASSIGN_OR_RETURN(const TensorType type, values::TypeFromC(spec->element_type, spec->dims, spec->num_dims));
    if (args->device_layouts != nullptr && i < args->num_device_layouts) {
      PW_RETURN_IF_ERROR(values::CheckDeviceLayout(args->device_layouts[i], type));
    }
    PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
    if (devices->size() > 1) return Unimplemented("transfers in pieces go to single devices, and this is a slice");
    PW_ASSIGN_OR_RETURN(client::Shard shard, client->session()->buffers().Declare(devices->front(), type));
    to_fill.push_back(std::make_shared<values::Value>(client, device, std::move(shard)));
  }
  args->transfer_manager = new Manager(client, device, std::move(to_fill));
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args* args) {
  delete args->transfer_manager;
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_TransferData(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args) {
  Manager& manager = *args->transfer_manager;
  PW_RETURN_IF_ERROR(
      Transfer(manager, args->buffer_index, args->data, args->offset, args->transfer_size, args->is_last_transfer));
  args->done_with_h2d_transfer = NewEvent(*manager.client, Event::Done(OkStatus()), true);  // copied
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_TransferLiteral(
    PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args* args) {
  Manager& manager = *args->transfer_manager;
  PW_RETURN_IF_ERROR(CheckIndex(manager, args->buffer_index));
  const TensorType& wanted = manager.values[static_cast<size_t>(args->buffer_index)]->type();
  PW_ASSIGN_OR_RETURN(const TensorType type,
                      values::TypeFromC(args->shape_element_type, args->shape_dims, args->shape_num_dims));
  if (type != wanted) {
    return InvalidArgument("expected a literal of " + wanted.ToString() + ", got " + type.ToString());
  }
  PW_ASSIGN_OR_RETURN(const values::ByteStrides strides, values::StridesOf(args->shape_layout, type));
  std::vector<char> dense;
  const void* data = args->data;
  if (data != nullptr && !values::IsRowMajor(type, strides)) {
    dense.resize(static_cast<size_t>(type.ByteSize()));
    values::CopyElements(type, data, strides, dense.data(), values::RowMajorStrides(type));
    data = dense.data();
  }
  PW_RETURN_IF_ERROR(Transfer(manager, args->buffer_index, data, 0, type.ByteSize(), true));
  args->done_with_h2d_transfer = NewEvent(*manager.client, Event::Done(OkStatus()), true);
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_RetrieveBuffer(
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args* args) {
  Manager& manager = *args->transfer_manager;
  PW_RETURN_IF_ERROR(CheckIndex(manager, args->buffer_index));
  std::lock_guard lock(manager.mutex);
  const size_t index = static_cast<size_t>(args->buffer_index);
  if (std::exchange(manager.states[index].retrieved, true)) {
    return FailedPrecondition("the buffer was retrieved before");
  }
  args->buffer_out = new PJRT_Buffer(manager.values[index]);
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args* args) {
  args->device_out = args->transfer_manager->device;
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_BufferCount(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args* args) {
  args->buffer_count = args->transfer_manager->values.size();
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_BufferSize(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args* args) {
  PW_RETURN_IF_ERROR(CheckIndex(*args->transfer_manager, args->buffer_index));
  args->buffer_size =
      static_cast<size_t>(args->transfer_manager->values[static_cast<size_t>(args->buffer_index)]->type().ByteSize());
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_SetBufferError(
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args* args) {
  Manager& manager = *args->transfer_manager;
  PW_RETURN_IF_ERROR(CheckIndex(manager, args->buffer_index));
  Status error = StatusFromC(args->error_code, args->error_message, args->error_message_size);
  if (error.ok()) error = Status(Code::kUnknown, "the transfer failed");
  std::lock_guard lock(manager.mutex);
  Manager::State& state = manager.states[static_cast<size_t>(args->buffer_index)];
  if (state.finished) return FailedPrecondition("the buffer has had its last transfer, or an error");
  const client::Shard& shard = *manager.values[static_cast<size_t>(args->buffer_index)]->shard();
  PW_RETURN_IF_ERROR(shard.buffer->session()->buffers().Fail(shard, error));
  state.finished = true;
  return OkStatus();
}

Status AsyncHostToDeviceTransferManager_AddMetadata(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args*) {
  return OkStatus();  // for profilers
}

}  // namespace pathways::plugin
