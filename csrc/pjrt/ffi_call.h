// Helpers for handlers of custom calls: reading a call frame of the XLA FFI, and answering it.
//
// Ownership: frames and what they point to belong to the plugin, for the time of the call. Threads: any.
#ifndef PTPATHWAYS_PJRT_FFI_CALL_H_
#define PTPATHWAYS_PJRT_FFI_CALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {

// The plugin asks once, on registering, which ABI the handler was written for. True: this was the question.
bool AnswersMetadata(const XLA_FFI_CallFrame* frame);

XLA_FFI_Error* RefuseCall(const XLA_FFI_CallFrame* frame, const std::string& message);  // INVALID_ARGUMENT
// nullptr when OK.
XLA_FFI_Error* ToFfiError(const XLA_FFI_CallFrame* frame, const Status& status);

std::optional<int64_t> IntegerAttribute(const XLA_FFI_Attrs& attributes, std::string_view name);
// array<i64: ...>
std::optional<std::span<const int64_t>> ArrayAttribute(const XLA_FFI_Attrs& attributes, std::string_view name);

// The device that executes the call, as an index into Client::devices(); 0 where the plugin does not say.
size_t DeviceOrdinal(const XLA_FFI_CallFrame* frame);

// Of a frame's arguments or results.
inline const XLA_FFI_Buffer& BufferAt(void* const* buffers, int64_t index) {
  return *static_cast<const XLA_FFI_Buffer*>(buffers[index]);
}

int64_t BufferBytes(const XLA_FFI_Buffer& buffer, int64_t element_bytes);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_FFI_CALL_H_
