#include "csrc/pjrt/custom_calls.h"

#include <sys/prctl.h>

#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kWait = "pathways.wait";
constexpr std::string_view kPlatform = "cpu";
constexpr std::chrono::microseconds kSpin{60};
constexpr int64_t kLongestUs = 60'000'000;
constexpr size_t kDevices = 256;  // devices beyond share locks with the first

XLA_FFI_Error* Refuse(const XLA_FFI_CallFrame* frame, const char* message) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = PjrtStructSize<XLA_FFI_Error_Create_Args>::value;
  args.message = message;
  args.errc = XLA_FFI_Error_Code_INVALID_ARGUMENT;
  return frame->api->XLA_FFI_Error_Create(&args);
}

// The plugin asks once, on registering, which ABI the handler was written for.
bool AnswersMetadata(const XLA_FFI_CallFrame* frame) {
  for (XLA_FFI_Extension_Base* base = frame->extension_start; base != nullptr; base = base->next) {
    if (base->type != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(base)->metadata;
    metadata->api_version.struct_size = PjrtStructSize<XLA_FFI_Api_Version>::value;
    metadata->api_version.major_version = frame->api->api_version.major_version;
    metadata->api_version.minor_version = frame->api->api_version.minor_version;
    return true;
  }
  return false;
}

std::optional<int64_t> Integer(const XLA_FFI_Attrs& attributes, std::string_view name) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    const XLA_FFI_ByteSpan& span = *attributes.names[i];
    if (std::string_view(span.ptr, span.len) != name || attributes.types[i] != XLA_FFI_AttrType_SCALAR) continue;
    const auto* scalar = static_cast<const XLA_FFI_Scalar*>(attributes.attrs[i]);
    if (scalar->dtype == XLA_FFI_DataType_S64) return *static_cast<const int64_t*>(scalar->value);
    if (scalar->dtype == XLA_FFI_DataType_S32) return *static_cast<const int32_t*>(scalar->value);
  }
  return std::nullopt;
}

// 0 where the plugin does not say.
size_t DeviceOrdinal(const XLA_FFI_CallFrame* frame) {
  const XLA_FFI_Api* api = frame->api;
  const auto offset = static_cast<size_t>(reinterpret_cast<const char*>(&api->XLA_FFI_DeviceOrdinal_Get) -
                                          reinterpret_cast<const char*>(api));
  if (offset + sizeof(void*) > api->struct_size || api->XLA_FFI_DeviceOrdinal_Get == nullptr) return 0;
  XLA_FFI_DeviceOrdinal_Get_Args args{};
  args.struct_size = PjrtStructSize<XLA_FFI_DeviceOrdinal_Get_Args>::value;
  args.ctx = frame->ctx;
  if (XLA_FFI_Error* error = api->XLA_FFI_DeviceOrdinal_Get(&args); error != nullptr) {
    XLA_FFI_Error_Destroy_Args destroy{};
    destroy.struct_size = PjrtStructSize<XLA_FFI_Error_Destroy_Args>::value;
    destroy.error = error;
    api->XLA_FFI_Error_Destroy(&destroy);
    return 0;
  }
  return static_cast<size_t>(args.device_ordinal);
}

int64_t Bytes(const XLA_FFI_Buffer& buffer, int64_t element_bytes) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer.rank; ++i) count *= buffer.dims[i];
  return count * element_bytes;
}

XLA_FFI_Error* Wait(XLA_FFI_CallFrame* frame) {
  if (AnswersMetadata(frame)) return nullptr;
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  const std::optional<int64_t> microseconds = Integer(frame->attrs, "microseconds");
  if (!microseconds || *microseconds < 0 || *microseconds > kLongestUs) {
    return Refuse(frame, "pathways.wait needs an attribute `microseconds` from 0 to 60000000");
  }
  if (frame->args.size != 1 || frame->rets.size != 1) {
    return Refuse(frame, "pathways.wait needs one operand and one result");
  }
  const auto& from = *static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
  const auto& to = *static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]);
  if (from.dtype != XLA_FFI_DataType_F32 || to.dtype != from.dtype || Bytes(from, 4) != Bytes(to, 4)) {
    return Refuse(frame, "pathways.wait needs an operand and a result of type f32 and of one shape");
  }
  static std::array<std::mutex, kDevices> devices;
  const std::lock_guard turn(devices[DeviceOrdinal(frame) % kDevices]);
  const auto end = Clock::now() + std::chrono::microseconds(*microseconds);
  // The kernel wakes a sleeper late: by its slack of 50 us, which can be changed, and by some 30 us more.
  thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1000UL);
  (void)slack;
  std::this_thread::sleep_until(end - kSpin);
  while (Clock::now() < end) {
  }
  if (from.data != to.data) std::memcpy(to.data, from.data, static_cast<size_t>(Bytes(from, 4)));
  return nullptr;
}

}  // namespace

Status RegisterCustomCalls(const Api& api, std::string_view platform) {
  if (platform != kPlatform) return OkStatus();
  const PJRT_Extension_Base* base = api.FindExtension(PJRT_Extension_Type_FFI);
  if (base == nullptr || base->struct_size < PjrtStructSize<PJRT_FFI_Extension>::value) return OkStatus();
  const auto* extension = reinterpret_cast<const PJRT_FFI_Extension*>(base);
  static std::mutex mutex;
  static const PJRT_Api* registered = nullptr;  // guarded by mutex; a process loads one plugin
  const std::lock_guard lock(mutex);
  if (registered == api.table()) return OkStatus();
  PJRT_FFI_Register_Handler_Args args{};
  args.struct_size = PjrtStructSize<PJRT_FFI_Register_Handler_Args>::value;
  args.target_name = kWait.data();
  args.target_name_size = kWait.size();
  args.handler = reinterpret_cast<void*>(&Wait);
  args.platform_name = kPlatform.data();
  args.platform_name_size = kPlatform.size();
  if (PJRT_Error* error = extension->register_handler(&args); error != nullptr) return api.TakeError(error);
  registered = api.table();
  return OkStatus();
}

}  // namespace pathways::pjrt
