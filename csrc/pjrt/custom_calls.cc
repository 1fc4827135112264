#include "csrc/pjrt/custom_calls.h"

#include <sys/prctl.h>

#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "csrc/base/thread_annotations.h"
#include "csrc/hlo/collective_instruction.h"
#include "csrc/hlo/use_kernels.h"
#include "csrc/pjrt/collective_calls.h"
#include "csrc/pjrt/ffi_call.h"
#include "csrc/pjrt/kernel_calls.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kWait = "pathways.wait";
constexpr std::string_view kPlatform = "cpu";
constexpr std::chrono::microseconds kSpin{60};
constexpr int64_t kLongestUs = 60'000'000;
constexpr size_t kDevices = 256;  // devices beyond share locks with the first

XLA_FFI_Error* Wait(XLA_FFI_CallFrame* frame) {
  if (AnswersMetadata(frame)) return nullptr;
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  const std::optional<int64_t> microseconds = IntegerAttribute(frame->attrs, "microseconds");
  if (!microseconds || *microseconds < 0 || *microseconds > kLongestUs) {
    return RefuseCall(frame, "pathways.wait needs an attribute `microseconds` from 0 to 60000000");
  }
  if (frame->args.size != 1 || frame->rets.size != 1) {
    return RefuseCall(frame, "pathways.wait needs one operand and one result");
  }
  const auto& from = *static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
  const auto& to = *static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]);
  if (from.dtype != XLA_FFI_DataType_F32 || to.dtype != from.dtype || BufferBytes(from, 4) != BufferBytes(to, 4)) {
    return RefuseCall(frame, "pathways.wait needs an operand and a result of type f32 and of one shape");
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
  if (from.data != to.data) std::memcpy(to.data, from.data, static_cast<size_t>(BufferBytes(from, 4)));
  return nullptr;
}

}  // namespace

Status RegisterCustomCalls(const Api& api, std::string_view platform) {
  if (platform != kPlatform) return OkStatus();
  const PJRT_Extension_Base* base = api.FindExtension(PJRT_Extension_Type_FFI);
  if (base == nullptr || base->struct_size < PjrtStructSize<PJRT_FFI_Extension>::value) return OkStatus();
  const auto* extension = reinterpret_cast<const PJRT_FFI_Extension*>(base);
  static std::mutex mutex;
  static const PJRT_Api* registered PW_GUARDED_BY(mutex) = nullptr;  // a process loads one plugin
  const std::lock_guard lock(mutex);
  if (registered == api.table()) return OkStatus();
  for (const auto& [name, handler] : {std::pair(kWait, &Wait), std::pair(hlo::kCollectiveCall, &ServeCollectiveCall),
                                      std::pair(hlo::kKernelCall, &ServeKernelCall)}) {
    PJRT_FFI_Register_Handler_Args args{};
    args.struct_size = PjrtStructSize<PJRT_FFI_Register_Handler_Args>::value;
    args.target_name = name.data();
    args.target_name_size = name.size();
    args.handler = reinterpret_cast<void*>(handler);
    args.platform_name = kPlatform.data();
    args.platform_name_size = kPlatform.size();
    if (PJRT_Error* error = extension->register_handler(&args); error != nullptr) return api.TakeError(error);
  }
  registered = api.table();
  return OkStatus();
}

}  // namespace pathways::pjrt
