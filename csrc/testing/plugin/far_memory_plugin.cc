// A PJRT plugin for tests: two devices whose memory the host cannot read and whose arrays lie as a TPU's do.
//
// It stands on a cpu plugin (PW_TEST_PJRT_PLUGIN) and replaces what is different on such a platform. Arrays of two and
// more dimensions lie in column-major order, those of one in tiles. Bytes that are streamed to a device
// (TransferData) are taken for bytes in that order, as the C API says; a literal (TransferLiteral) comes in the order
// that it names. So a caller that streams dense row-major bytes computes with wrong values.
//
// With PW_TEST_EXECUTE_WAITS in the environment, Execute also makes its caller wait for the arguments.
//
// With PW_TEST_KEEPS_ERRORS a failed transfer's error reaches the ready event of its buffer and nothing else, as with
// XLA's CUDA client: what reads the buffer computes with garbage and succeeds. So each transfer has a shadow, a second
// one of the cpu plugin. The shadow's buffer says when the transfer has ended and how; the other one never fails.
//
// Ownership: tables live as long as the process. Threads: any; Locks: State::mutex guards the tables.
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "csrc/base/tensor_type.h"
#include "csrc/pjrt/api.h"
#include "csrc/pjrt/event.h"

namespace pathways::testing {
namespace {

constexpr int64_t kDevices = 2;
constexpr int64_t kTile = 128;

// A transfer that has not come to its end.
struct Filling {
  TensorType type;
  std::vector<std::byte> streamed;  // as it lies on the device
  std::vector<std::byte> dense;     // the same for the cpu plugin, which reads it until the transfer ends
  PJRT_AsyncHostToDeviceTransferManager* shadow = nullptr;
  PJRT_Buffer* shadow_buffer = nullptr;  // until the buffer is retrieved
};

struct State {
  const PJRT_Api* base = nullptr;
  std::shared_ptr<pjrt::Api> base_api;
  PJRT_Api table{};
  std::mutex mutex;
  std::map<PJRT_AsyncHostToDeviceTransferManager*, Filling> filling;
  bool keeps_errors = false;                      // constant after Load
  std::map<PJRT_Buffer*, PJRT_Buffer*> shadows;   // of buffers that transfers fill
  std::map<size_t, std::vector<int64_t>> orders;  // by rank: minor_to_major
  std::set<const void*> pinned;
};

State& TheState() {
  static auto* state = new State();
  return *state;
}

// From column-major to row-major.
std::vector<std::byte> Dense(const Filling& filling) {
  const std::vector<int64_t>& dims = filling.type.dims;
  const auto item = static_cast<size_t>(DTypeBytes(filling.type.dtype));
  std::vector<std::byte> dense(filling.streamed.size());
  std::vector<int64_t> at(dims.size(), 0);
  for (size_t from = 0; from < dense.size(); from += item) {
    size_t to = 0;
    for (size_t i = 0; i < dims.size(); ++i) to = to * static_cast<size_t>(dims[i]) + static_cast<size_t>(at[i]);
    std::memcpy(dense.data() + to * item, filling.streamed.data() + from, item);
    for (size_t i = 0; i < dims.size() && ++at[i] == dims[i]; ++i) at[i] = 0;
  }
  return dense;
}

PJRT_Error* ClientCreate(PJRT_Client_Create_Args* args) {
  std::vector<PJRT_NamedValue> options(args->create_options, args->create_options + args->num_options);
  static constexpr std::string_view kDeviceCount = "cpu_device_count";
  PJRT_NamedValue count{};
  count.struct_size = PjrtStructSize<PJRT_NamedValue>::value;
  count.name = kDeviceCount.data();
  count.name_size = kDeviceCount.size();
  count.type = PJRT_NamedValue_kInt64;
  count.int64_value = kDevices;
  count.value_size = 1;
  options.push_back(count);
  PJRT_Client_Create_Args base = *args;
  base.create_options = options.data();
  base.num_options = options.size();
  PJRT_Error* error = TheState().base->PJRT_Client_Create(&base);
  args->client = base.client;
  return error;
}

PJRT_Error* ClientPlatformName(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "far";
  args->platform_name_size = 3;
  return nullptr;
}

PJRT_Error* BufferIsOnCpu(PJRT_Buffer_IsOnCpu_Args* args) {
  args->is_on_cpu = false;
  return nullptr;
}

PJRT_Error* BufferGetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args* args) {
  PJRT_Buffer_Dimensions_Args dims{};
  dims.struct_size = PjrtStructSize<PJRT_Buffer_Dimensions_Args>::value;
  dims.buffer = args->buffer;
  if (PJRT_Error* error = TheState().base->PJRT_Buffer_Dimensions(&dims)) return error;
  std::lock_guard lock(TheState().mutex);
  std::vector<int64_t>& order = TheState().orders[dims.num_dims];
  while (order.size() < dims.num_dims) order.push_back(static_cast<int64_t>(order.size()));
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args->layout.tiled = {};
  args->layout.tiled.struct_size = PjrtStructSize<PJRT_Buffer_MemoryLayout_Tiled>::value;
  args->layout.tiled.minor_to_major = order.data();
  args->layout.tiled.minor_to_major_size = order.size();
  if (dims.num_dims == 1) {
    static const int64_t tile = kTile;
    static const size_t tile_rank = 1;
    args->layout.tiled.tile_dims = &tile;
    args->layout.tiled.tile_dim_sizes = &tile_rank;
    args->layout.tiled.num_tiles = 1;
  }
  return nullptr;
}

PJRT_Error* MakeShadow(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args args, Filling& filling) {
  args.transfer_manager = nullptr;
  if (PJRT_Error* error = TheState().base->PJRT_Client_CreateBuffersForAsyncHostToDevice(&args)) return error;
  PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args retrieve{};
  retrieve.struct_size = PjrtStructSize<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>::value;
  retrieve.transfer_manager = args.transfer_manager;
  if (PJRT_Error* error = TheState().base->PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(&retrieve))
    return error;
  filling.shadow = args.transfer_manager;
  filling.shadow_buffer = retrieve.buffer_out;
  return nullptr;
}

void DestroyShadow(PJRT_Buffer* buffer) {
  if (buffer == nullptr) return;
  PJRT_Buffer_Destroy_Args destroy{};
  destroy.buffer = buffer;
  (void)TheState().base_api->Call<&PJRT_Api::PJRT_Buffer_Destroy>(&destroy);
}

// The transfer has all its bytes: any will do for its shadow.
void EndShadow(PJRT_AsyncHostToDeviceTransferManager* manager) {
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args last{};
  last.is_last_transfer = true;
  {
    std::lock_guard lock(TheState().mutex);
    const Filling& filling = TheState().filling.at(manager);
    last.transfer_manager = filling.shadow;
    last.data = filling.streamed.data();
    last.transfer_size = static_cast<int64_t>(filling.streamed.size());
  }
  if (last.transfer_manager == nullptr) return;
  if (TheState().base_api->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_TransferData>(&last).ok()) {
    pjrt::EventHandle(TheState().base_api, last.done_with_h2d_transfer).OnReady([](const Status&) {});
  }
}

PJRT_Error* CreateBuffers(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args* args) {
  PJRT_Error* error = TheState().base->PJRT_Client_CreateBuffersForAsyncHostToDevice(args);
  if (error != nullptr) return error;
  const PJRT_ShapeSpec& spec = args->shape_specs[0];
  Filling filling{{static_cast<DType>(spec.element_type), {spec.dims, spec.dims + spec.num_dims}}, {}, {}};
  filling.streamed.resize(static_cast<size_t>(filling.type.ByteSize()));
  if (TheState().keeps_errors) {
    if ((error = MakeShadow(*args, filling)) != nullptr) return error;
  }
  std::lock_guard lock(TheState().mutex);
  TheState().filling.insert_or_assign(args->transfer_manager, std::move(filling));
  return nullptr;
}

PJRT_Error* ManagerDestroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args* args) {
  PJRT_AsyncHostToDeviceTransferManager* const manager = args->transfer_manager;
  PJRT_Error* error = TheState().base->PJRT_AsyncHostToDeviceTransferManager_Destroy(args);
  PJRT_AsyncHostToDeviceTransferManager* shadow = nullptr;
  PJRT_Buffer* shadow_buffer = nullptr;
  std::map<PJRT_AsyncHostToDeviceTransferManager*, Filling>::node_type ended;  // its bytes may be read until the end
  {
    std::lock_guard lock(TheState().mutex);
    ended = TheState().filling.extract(manager);
    if (!ended.empty()) shadow = ended.mapped().shadow, shadow_buffer = ended.mapped().shadow_buffer;
  }
  if (shadow != nullptr) {
    PJRT_AsyncHostToDeviceTransferManager_Destroy_Args destroy{};
    destroy.transfer_manager = shadow;
    (void)TheState().base_api->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_Destroy>(&destroy);
  }
  DestroyShadow(shadow_buffer);
  return error;
}

PJRT_Error* RetrieveBuffer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args* args) {
  PJRT_Error* error = TheState().base->PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(args);
  if (error != nullptr) return error;
  std::lock_guard lock(TheState().mutex);
  Filling& filling = TheState().filling.at(args->transfer_manager);
  TheState().shadows[args->buffer_out] = std::exchange(filling.shadow_buffer, nullptr);
  return nullptr;
}

PJRT_Error* BufferDestroy(PJRT_Buffer_Destroy_Args* args) {
  PJRT_Buffer* shadow = nullptr;
  {
    std::lock_guard lock(TheState().mutex);
    if (const auto at = TheState().shadows.find(args->buffer); at != TheState().shadows.end()) {
      shadow = at->second;
      TheState().shadows.erase(at);
    }
  }
  DestroyShadow(shadow);
  return TheState().base->PJRT_Buffer_Destroy(args);
}

PJRT_Error* BufferReadyEvent(PJRT_Buffer_ReadyEvent_Args* args) {
  PJRT_Buffer_ReadyEvent_Args base = *args;
  {
    std::lock_guard lock(TheState().mutex);
    if (const auto at = TheState().shadows.find(args->buffer); at != TheState().shadows.end()) base.buffer = at->second;
  }
  PJRT_Error* error = TheState().base->PJRT_Buffer_ReadyEvent(&base);
  args->event = base.event;
  return error;
}

// The error is the shadow's; whatever waits for the buffer goes on with what happens to lie there.
PJRT_Error* SetBufferError(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args* args) {
  PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args base = *args;
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args garbage{};
  garbage.transfer_manager = args->transfer_manager;
  garbage.is_last_transfer = true;
  {
    std::lock_guard lock(TheState().mutex);
    Filling& filling = TheState().filling.at(args->transfer_manager);
    base.transfer_manager = filling.shadow;
    filling.dense.assign(filling.streamed.size(), std::byte{0x41});
    garbage.data = filling.dense.data();
    garbage.transfer_size = static_cast<int64_t>(filling.dense.size());
  }
  PJRT_Error* error = TheState().base->PJRT_AsyncHostToDeviceTransferManager_SetBufferError(&base);
  if (error != nullptr) return error;
  if (TheState().base_api->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_TransferData>(&garbage).ok()) {
    pjrt::EventHandle(TheState().base_api, garbage.done_with_h2d_transfer).OnReady([](const Status&) {});
  }
  return nullptr;
}

PJRT_Error* TransferData(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args) {
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args base = *args;
  {
    std::lock_guard lock(TheState().mutex);
    Filling& filling = TheState().filling.at(args->transfer_manager);
    std::memcpy(filling.streamed.data() + args->offset, args->data, static_cast<size_t>(args->transfer_size));
    if (args->is_last_transfer) {
      filling.dense = Dense(filling);
      base.data = filling.dense.data();
      base.offset = 0;
      base.transfer_size = static_cast<int64_t>(filling.dense.size());
    }
  }
  PJRT_Error* error = TheState().base->PJRT_AsyncHostToDeviceTransferManager_TransferData(&base);
  args->done_with_h2d_transfer = base.done_with_h2d_transfer;
  if (error == nullptr && args->is_last_transfer) EndShadow(args->transfer_manager);
  return error;
}

PJRT_Error* TransferLiteral(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args* args) {
  const PJRT_Buffer_MemoryLayout_Tiled& given = args->shape_layout->tiled;
  for (size_t i = 0; i < given.minor_to_major_size; ++i) {  // this plugin takes row-major literals only
    if (given.minor_to_major[i] != static_cast<int64_t>(given.minor_to_major_size - 1 - i)) std::abort();
  }
  const TensorType type{static_cast<DType>(args->shape_element_type),
                        {args->shape_dims, args->shape_dims + args->shape_num_dims}};
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args base{};
  base.struct_size = PjrtStructSize<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>::value;
  base.transfer_manager = args->transfer_manager;
  base.buffer_index = args->buffer_index;
  base.data = args->data;
  base.transfer_size = type.ByteSize();
  base.is_last_transfer = true;
  PJRT_Error* error = TheState().base->PJRT_AsyncHostToDeviceTransferManager_TransferData(&base);
  args->done_with_h2d_transfer = base.done_with_h2d_transfer;
  if (error == nullptr) EndShadow(args->transfer_manager);
  return error;
}

// As a driver that pins memory, which it must be able to write, once.
PJRT_Error* DmaMap(PJRT_Client_DmaMap_Args* args) {
  auto* const bytes = static_cast<volatile char*>(args->data);
  for (size_t at = 0; at < args->size; at += 4096) bytes[at] = bytes[at];
  std::lock_guard lock(TheState().mutex);
  if (!TheState().pinned.insert(args->data).second) std::abort();
  return nullptr;
}

PJRT_Error* DmaUnmap(PJRT_Client_DmaUnmap_Args* args) {
  std::lock_guard lock(TheState().mutex);
  if (TheState().pinned.erase(args->data) == 0) std::abort();
  return nullptr;
}

// As XLA's CUDA client without asynchronous dispatch: who enqueues an execution sleeps until its arguments are there.
PJRT_Error* ExecuteWhenArgumentsAreThere(PJRT_LoadedExecutable_Execute_Args* args) {
  const pjrt::Api& api = *TheState().base_api;
  for (size_t device = 0; device < args->num_devices; ++device) {
    for (size_t i = 0; i < args->num_args; ++i) {
      PJRT_Buffer_ReadyEvent_Args ready{};
      ready.buffer = args->argument_lists[device][i];
      if (!api.Call<&PJRT_Api::PJRT_Buffer_ReadyEvent>(&ready).ok()) continue;
      (void)pjrt::EventHandle(TheState().base_api, ready.event).Await();  // the execution says what failed
    }
  }
  return TheState().base->PJRT_LoadedExecutable_Execute(args);
}

const PJRT_Api* Load() {
  State& state = TheState();
  const char* path = std::getenv("PW_TEST_PJRT_PLUGIN");
  if (path == nullptr) return nullptr;
  auto base = pjrt::Api::Load(path);
  if (!base.ok()) return nullptr;
  state.base_api = *base;
  state.base = (*base)->table();
  std::memcpy(&state.table, state.base, std::min(state.base->struct_size, sizeof(PJRT_Api)));
  state.table.struct_size = std::min(state.base->struct_size, sizeof(PJRT_Api));
  state.table.PJRT_Client_Create = &ClientCreate;
  state.table.PJRT_Client_PlatformName = &ClientPlatformName;
  state.table.PJRT_Buffer_IsOnCpu = &BufferIsOnCpu;
  state.table.PJRT_Buffer_GetMemoryLayout = &BufferGetMemoryLayout;
  state.table.PJRT_Client_CreateBuffersForAsyncHostToDevice = &CreateBuffers;
  state.table.PJRT_AsyncHostToDeviceTransferManager_Destroy = &ManagerDestroy;
  state.table.PJRT_Client_DmaMap = &DmaMap;
  state.table.PJRT_Client_DmaUnmap = &DmaUnmap;
  state.table.PJRT_AsyncHostToDeviceTransferManager_TransferData = &TransferData;
  state.table.PJRT_AsyncHostToDeviceTransferManager_TransferLiteral = &TransferLiteral;
  if (std::getenv("PW_TEST_EXECUTE_WAITS") != nullptr) {
    state.table.PJRT_LoadedExecutable_Execute = &ExecuteWhenArgumentsAreThere;
  }
  if (std::getenv("PW_TEST_KEEPS_ERRORS") != nullptr) {
    state.keeps_errors = true;
    state.table.PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer = &RetrieveBuffer;
    state.table.PJRT_AsyncHostToDeviceTransferManager_SetBufferError = &SetBufferError;
    state.table.PJRT_Buffer_Destroy = &BufferDestroy;
    state.table.PJRT_Buffer_ReadyEvent = &BufferReadyEvent;
  }
  return &state.table;
}

}  // namespace
}  // namespace pathways::testing

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api* const table = pathways::testing::Load();
  return table;
}
