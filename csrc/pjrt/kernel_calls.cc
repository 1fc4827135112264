#include "csrc/pjrt/kernel_calls.h"

#include <array>
#include <string>

#include "csrc/kernels/kernel.h"
#include "csrc/pjrt/ffi_call.h"

namespace pathways::pjrt {
namespace {

Status Serve(XLA_FFI_CallFrame* frame) {
  const auto numbers = ArrayAttribute(frame->attrs, "kernel");
  const auto threads = IntegerAttribute(frame->attrs, "threads");
  if (!numbers || !threads) return InvalidArgument("pathways.kernel lacks an attribute");
  if (frame->args.size != 2 || frame->rets.size != 2) {
    return InvalidArgument("pathways.kernel needs two operands and two results");
  }
  PW_ASSIGN_OR_RETURN(const auto kernel, kernels::KernelFor(*numbers, *threads));
  const std::array<const XLA_FFI_Buffer*, 3> arrays{&BufferAt(frame->args.args, 0), &BufferAt(frame->args.args, 1),
                                                    &BufferAt(frame->rets.rets, 0)};
  const auto dtype = kernel->dtype() == DType::kBF16 ? XLA_FFI_DataType_BF16 : XLA_FFI_DataType_F32;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i]->dtype != dtype || BufferBytes(*arrays[i], 1) != kernel->ElementCount(i)) {
      return InvalidArgument("pathways.kernel needs arrays of the sizes that its attributes say");
    }
  }
  const XLA_FFI_Buffer& room = BufferAt(frame->rets.rets, 1);
  if (BufferBytes(room, 1) < kernel->room_bytes()) {
    return FailedPrecondition("pathways.kernel needs " + std::to_string(kernel->room_bytes()) +
                              " bytes to work in, got " + std::to_string(BufferBytes(room, 1)));
  }
  return kernel->Run(arrays[0]->data, arrays[1]->data, arrays[2]->data, room.data);
}

}  // namespace

XLA_FFI_Error* ServeKernelCall(XLA_FFI_CallFrame* frame) {
  if (AnswersMetadata(frame)) return nullptr;
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  return ToFfiError(frame, Serve(frame));
}

}  // namespace pathways::pjrt
