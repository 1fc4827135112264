#include "csrc/pjrt/ffi_call.h"

namespace pathways::pjrt {
namespace {

// The value of the attribute, when it has this type.
const void* Attribute(const XLA_FFI_Attrs& attributes, std::string_view name, XLA_FFI_AttrType type) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    const XLA_FFI_ByteSpan& span = *attributes.names[i];
    if (std::string_view(span.ptr, span.len) == name && attributes.types[i] == type) return attributes.attrs[i];
  }
  return nullptr;
}

XLA_FFI_Error* Error(const XLA_FFI_CallFrame* frame, XLA_FFI_Error_Code code, const std::string& message) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = PjrtStructSize<XLA_FFI_Error_Create_Args>::value;
  args.message = message.c_str();
  args.errc = code;
  return frame->api->XLA_FFI_Error_Create(&args);
}

}  // namespace

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

XLA_FFI_Error* RefuseCall(const XLA_FFI_CallFrame* frame, const std::string& message) {
  return Error(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, message);
}

XLA_FFI_Error* ToFfiError(const XLA_FFI_CallFrame* frame, const Status& status) {
  if (status.ok()) return nullptr;
  // Both follow the numbers of absl::StatusCode.
  return Error(frame, static_cast<XLA_FFI_Error_Code>(status.code()), std::string(status.message()));
}

std::optional<int64_t> IntegerAttribute(const XLA_FFI_Attrs& attributes, std::string_view name) {
  const auto* scalar = static_cast<const XLA_FFI_Scalar*>(Attribute(attributes, name, XLA_FFI_AttrType_SCALAR));
  if (scalar == nullptr) return std::nullopt;
  if (scalar->dtype == XLA_FFI_DataType_S64) return *static_cast<const int64_t*>(scalar->value);
  if (scalar->dtype == XLA_FFI_DataType_S32) return *static_cast<const int32_t*>(scalar->value);
  return std::nullopt;
}

std::optional<std::span<const int64_t>> ArrayAttribute(const XLA_FFI_Attrs& attributes, std::string_view name) {
  const auto* array = static_cast<const XLA_FFI_Array*>(Attribute(attributes, name, XLA_FFI_AttrType_ARRAY));
  if (array == nullptr || array->dtype != XLA_FFI_DataType_S64) return std::nullopt;
  return std::span(static_cast<const int64_t*>(array->data), array->size);
}

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

int64_t BufferBytes(const XLA_FFI_Buffer& buffer, int64_t element_bytes) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer.rank; ++i) count *= buffer.dims[i];
  return count * element_bytes;
}

}  // namespace pathways::pjrt
