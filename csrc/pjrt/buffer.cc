#include "csrc/pjrt/buffer.h"

#include <cstring>

#include "csrc/pjrt/client.h"

namespace pathways::pjrt {
namespace {

// How dense row-major host memory of an array of this rank is described to a plugin.
class RowMajorLayout {
 public:
  explicit RowMajorLayout(size_t rank) : minor_to_major_(rank) {
    for (size_t i = 0; i < rank; ++i) minor_to_major_[i] = static_cast<int64_t>(rank - 1 - i);
    layout_.struct_size = PjrtStructSize<PJRT_Buffer_MemoryLayout>::value;
    layout_.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    layout_.tiled.struct_size = PjrtStructSize<PJRT_Buffer_MemoryLayout_Tiled>::value;
    layout_.tiled.minor_to_major = minor_to_major_.data();
    layout_.tiled.minor_to_major_size = rank;
  }
  RowMajorLayout(const RowMajorLayout&) = delete;
  RowMajorLayout& operator=(const RowMajorLayout&) = delete;

  PJRT_Buffer_MemoryLayout* raw() { return &layout_; }

 private:
  std::vector<int64_t> minor_to_major_;
  PJRT_Buffer_MemoryLayout layout_{};
};

// Dimensions of size one may stand anywhere in the order; a larger dimension must be more major than the one before.
bool TiledIsRowMajor(const PJRT_Buffer_MemoryLayout_Tiled& tiled, const std::vector<int64_t>& dims) {
  if (tiled.num_tiles != 0 || tiled.minor_to_major_size != dims.size()) return false;
  int64_t previous = static_cast<int64_t>(dims.size());
  for (size_t i = 0; i < tiled.minor_to_major_size; ++i) {
    const int64_t dim = tiled.minor_to_major[i];
    if (dim < 0 || dim >= static_cast<int64_t>(dims.size())) return false;
    if (dims[static_cast<size_t>(dim)] <= 1) continue;
    if (dim > previous) return false;
    previous = dim;
  }
  return true;
}

bool StridesAreRowMajor(const PJRT_Buffer_MemoryLayout_Strides& strides, const TensorType& type) {
  if (strides.num_byte_strides != type.dims.size()) return false;
  int64_t expected = DTypeBytes(type.dtype);
  for (size_t i = type.dims.size(); i-- > 0;) {
    if (type.dims[i] > 1 && strides.byte_strides[i] != expected) return false;
    expected *= type.dims[i];
  }
  return true;
}

}  // namespace

Buffer::Buffer(std::shared_ptr<Client> client, PJRT_Buffer* raw, std::shared_ptr<const TensorType> type, int device)
    : client_(std::move(client)), raw_(raw), type_(std::move(type)), device_(device) {}

Buffer::Buffer(Buffer&& other) noexcept
    : client_(std::move(other.client_)),
      raw_(std::exchange(other.raw_, nullptr)),
      type_(std::move(other.type_)),
      device_(other.device_),
      arrives_(other.arrives_),
      transfer_(std::move(other.transfer_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Reset();
    client_ = std::move(other.client_);
    raw_ = std::exchange(other.raw_, nullptr);
    type_ = std::move(other.type_);
    device_ = other.device_;
    arrives_ = other.arrives_;
    transfer_ = std::move(other.transfer_);
  }
  return *this;
}

void Buffer::Reset() {
  if (raw_ == nullptr) return;
  PJRT_Buffer_Destroy_Args args{};
  args.buffer = std::exchange(raw_, nullptr);
  (void)client_->api()->Call<&PJRT_Api::PJRT_Buffer_Destroy>(&args);  // nothing to do about a failing destructor
  type_.reset();
  client_.reset();
}

Result<int64_t> Buffer::OnDeviceBytes() const {
  PJRT_Buffer_OnDeviceSizeInBytes_Args args{};
  args.buffer = raw_;
  PW_RETURN_IF_ERROR(client_->api()->Call<&PJRT_Api::PJRT_Buffer_OnDeviceSizeInBytes>(&args));
  return static_cast<int64_t>(args.on_device_size_in_bytes);
}

Result<EventHandle> Buffer::ReadyEvent() const {
  PJRT_Buffer_ReadyEvent_Args args{};
  args.buffer = raw_;
  PW_RETURN_IF_ERROR(client_->api()->Call<&PJRT_Api::PJRT_Buffer_ReadyEvent>(&args));
  return EventHandle(client_->api(), args.event, transfer_);
}

void Buffer::ToHost(void* dst, size_t size, std::function<void(Status)> done) const {
  if (size != static_cast<size_t>(type_->ByteSize())) {
    return done(InvalidArgument("expected " + std::to_string(type_->ByteSize()) + " bytes of host memory for " +
                                type_->ToString() + ", got " + std::to_string(size)));
  }
  if (size == 0) {  // the C API takes a null or empty destination for a question about the size
    Result<EventHandle> ready = ReadyEvent();
    return ready.ok() ? ready->OnReady(std::move(done)) : done(ready.status());
  }
  RowMajorLayout layout(type_->dims.size());
  PJRT_Buffer_ToHostBuffer_Args args{};
  args.src = raw_;
  args.host_layout = layout.raw();
  args.dst = dst;
  args.dst_size = size;
  if (Status status = client_->api()->Call<&PJRT_Api::PJRT_Buffer_ToHostBuffer>(&args); !status.ok()) {
    return done(std::move(status));
  }
  EventHandle(client_->api(), args.event).OnReady(std::move(done));
}

Result<bool> Buffer::IsDense() const {
  PJRT_Buffer_GetMemoryLayout_Args args{};
  args.buffer = raw_;
  args.layout.struct_size = PjrtStructSize<PJRT_Buffer_MemoryLayout>::value;
  PW_RETURN_IF_ERROR(client_->api()->Call<&PJRT_Api::PJRT_Buffer_GetMemoryLayout>(&args));
  return args.layout.type == PJRT_Buffer_MemoryLayout_Type_Tiled ? TiledIsRowMajor(args.layout.tiled, type_->dims)
                                                                 : StridesAreRowMajor(args.layout.strides, *type_);
}

Result<const void*> Buffer::HostPointer() const {
  const auto& api = client_->api();
  PJRT_Buffer_IsOnCpu_Args on_cpu{};
  on_cpu.buffer = raw_;
  PW_RETURN_IF_ERROR(api->Call<&PJRT_Api::PJRT_Buffer_IsOnCpu>(&on_cpu));
  if (!on_cpu.is_on_cpu) {
    return FailedPrecondition("expected a buffer in host memory, got one on a " + client_->platform_name() +
                              " device; copy it with ToHost");
  }
  PW_ASSIGN_OR_RETURN(const bool dense, IsDense());
  if (!dense) {
    return FailedPrecondition("expected a dense row-major buffer, got " + type_->ToString() +
                              " in another layout; copy it with ToHost");
  }
  PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args pointer{};
  pointer.buffer = raw_;
  PW_RETURN_IF_ERROR(api->Call<&PJRT_Api::PJRT_Buffer_OpaqueDeviceMemoryDataPointer>(&pointer));
  return static_cast<const void*>(pointer.device_memory_ptr);
}

Result<Buffer> Buffer::CopyToDevice(int device) const {
  PW_RETURN_IF_ERROR(client_->CheckDevice(device));
  const auto& api = client_->api();
  PJRT_Buffer_CopyToMemory_Args to_memory{};
  to_memory.buffer = raw_;
  to_memory.dst_memory = client_->raw_memory(device);
  if (to_memory.dst_memory != nullptr && api->Has<&PJRT_Api::PJRT_Buffer_CopyToMemory>()) {
    PW_RETURN_IF_ERROR(api->Call<&PJRT_Api::PJRT_Buffer_CopyToMemory>(&to_memory));
    return Buffer(client_, to_memory.dst_buffer, type_, device);
  }
  PJRT_Buffer_CopyToDevice_Args to_device{};
  to_device.buffer = raw_;
  to_device.dst_device = client_->raw_device(device);
  PW_RETURN_IF_ERROR(api->Call<&PJRT_Api::PJRT_Buffer_CopyToDevice>(&to_device));
  return Buffer(client_, to_device.dst_buffer, type_, device);
}

Status Buffer::Delete() {
  PJRT_Buffer_Delete_Args args{};
  args.buffer = raw_;
  return client_->api()->Call<&PJRT_Api::PJRT_Buffer_Delete>(&args);
}

bool Buffer::IsDeleted() const {
  PJRT_Buffer_IsDeleted_Args args{};
  args.buffer = raw_;
  return client_->api()->Call<&PJRT_Api::PJRT_Buffer_IsDeleted>(&args).ok() && args.is_deleted;
}

AsyncBuffer::AsyncBuffer(std::shared_ptr<Client> client, PJRT_AsyncHostToDeviceTransferManager* manager,
                         std::shared_ptr<const TensorType> type, int device)
    : client_(std::move(client)), manager_(manager), type_(std::move(type)), device_(device) {}

AsyncBuffer::~AsyncBuffer() {
  if (!finished_) {
    (void)SetError(Cancelled("the transfer that should have filled " + type_->ToString() + " was given up"));
  }
  PJRT_AsyncHostToDeviceTransferManager_Destroy_Args args{};
  args.transfer_manager = manager_;
  (void)client_->api()->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_Destroy>(&args);
}

Result<Buffer> AsyncBuffer::TakeBuffer() {
  if (taken_) return FailedPrecondition("expected TakeBuffer once per transfer, got a second call");
  PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args args{};
  args.transfer_manager = manager_;
  PW_RETURN_IF_ERROR(client_->api()->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer>(&args));
  taken_ = true;
  Buffer buffer(client_, args.buffer_out, type_, device_);
  buffer.arrives_ = true;
  buffer.transfer_ = failure_;
  // The transfer manager holds the memory as well, for its own writes.
  if (const Result<const void*> memory = buffer.HostPointer(); memory.ok()) {
    memory_ = static_cast<std::byte*>(const_cast<void*>(*memory));
    return buffer;
  }
  if (type_->ByteSize() == 0) return buffer;
  const Result<bool> dense = buffer.IsDense();
  if (!dense.ok() && dense.status().code() != Code::kUnimplemented) return dense.status();
  dense_ = !dense.ok() || *dense;  // a plugin that cannot say has one layout only
  if (!dense_ && !client_->api()->Has<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_TransferLiteral>()) {
    return Unimplemented("expected a " + client_->platform_name() + " plugin that converts what it is sent, since " +
                         type_->ToString() + " does not lie dense and row-major there; this one has no " +
                         "PJRT_AsyncHostToDeviceTransferManager_TransferLiteral: install a newer one");
  }
  return buffer;
}

void AsyncBuffer::Transfer(const void* data, size_t size, size_t offset, bool last, std::function<void(Status)> done) {
  const auto total = static_cast<size_t>(type_->ByteSize());
  if (finished_) return done(FailedPrecondition("expected no transfer after the last one or an error, got one more"));
  if (offset > total || size > total - offset) {
    return done(InvalidArgument("expected bytes within the " + std::to_string(total) + " of " + type_->ToString() +
                                ", got " + std::to_string(size) + " at " + std::to_string(offset)));
  }
  if (!dense_) {
    if (last && size == total) return TransferLiteral(data, std::move(done));
    if (staging_ == nullptr) staging_ = std::make_shared<std::vector<std::byte>>(total);
    if (size > 0) std::memcpy(staging_->data() + offset, data, size);
    if (!last) return done(OkStatus());
    return TransferLiteral(staging_->data(),
                           [staging = staging_, done = std::move(done)](Status status) { done(std::move(status)); });
  }
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args args{};
  args.transfer_manager = manager_;
  args.data = data;
  args.offset = static_cast<int64_t>(offset);
  args.transfer_size = static_cast<int64_t>(size);
  args.is_last_transfer = last;
  if (Status status = client_->api()->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_TransferData>(&args);
      !status.ok()) {
    return done(std::move(status));
  }
  finished_ = finished_ || last;
  EventHandle(client_->api(), args.done_with_h2d_transfer).OnReady(std::move(done));
}

// Bytes that are streamed (TransferData) are taken as they lie on the device; a literal says how it lies.
void AsyncBuffer::TransferLiteral(const void* data, std::function<void(Status)> done) {
  RowMajorLayout layout(type_->dims.size());
  PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args args{};
  args.transfer_manager = manager_;
  args.data = const_cast<void*>(data);
  args.shape_dims = type_->dims.data();
  args.shape_num_dims = type_->dims.size();
  args.shape_element_type = static_cast<PJRT_Buffer_Type>(type_->dtype);
  args.shape_layout = layout.raw();
  if (Status status = client_->api()->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_TransferLiteral>(&args);
      !status.ok()) {
    return done(std::move(status));
  }
  finished_ = true;
  EventHandle(client_->api(), args.done_with_h2d_transfer).OnReady(std::move(done));
}

Status AsyncBuffer::SetError(const Status& error) {
  if (finished_) return FailedPrecondition("expected no error after the last transfer or another error, got one");
  if (error.ok()) return InvalidArgument("expected an error to poison a buffer with, got OK");
  PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args args{};
  args.transfer_manager = manager_;
  args.error_code = static_cast<PJRT_Error_Code>(error.code());
  args.error_message = error.message().data();
  args.error_message_size = error.message().size();
  failure_->Set(error);  // before anybody can be told that the buffer is there
  PW_RETURN_IF_ERROR(client_->api()->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_SetBufferError>(&args));
  finished_ = true;
  return OkStatus();
}

}  // namespace pathways::pjrt
