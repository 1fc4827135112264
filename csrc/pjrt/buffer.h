// Buffer: one array on one device, perhaps not filled yet.
//
// Ownership: move-only; frees the device memory when destroyed. It keeps its Client alive.
// Threads:   const methods may be called from any thread, but for arrives; that, moving, Delete and destruction are the
//            owner's.
//            Callbacks run on a thread of the plugin (or inline), and must not block.
#ifndef PTPATHWAYS_PJRT_BUFFER_H_
#define PTPATHWAYS_PJRT_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/pjrt/event.h"

namespace pathways::pjrt {

class Client;

class Buffer {
 public:
  Buffer() = default;  // holds nothing; only valid(), moving and destroying are allowed
  // Takes ownership of `raw`. `device` is an index into client->devices().
  Buffer(std::shared_ptr<Client> client, PJRT_Buffer* raw, std::shared_ptr<const TensorType> type, int device);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Reset(); }

  bool valid() const { return raw_ != nullptr; }
  PJRT_Buffer* raw() const { return raw_; }
  const TensorType& type() const { return *type_; }
  const std::shared_ptr<const TensorType>& shared_type() const { return type_; }
  // Index into Client::devices().
  int device() const { return device_; }
  // A transfer fills it (AsyncBuffer), which is not known to have ended well.
  bool arrives() const { return arrives_; }
  void NoteArrived() { arrives_ = false; }

  // Bytes taken on the device: at least type().ByteSize(), more where the device pads.
  Result<int64_t> OnDeviceBytes() const;
  // Set when the contents are there, with the error if what should have made them failed.
  Result<EventHandle> ReadyEvent() const;

  // Copies the contents, dense and row-major, to `dst`, which must stay valid until `done` runs. `size` must be
  // type().ByteSize(). `done` runs exactly once whatever happens. The Buffer itself may go before that.
  void ToHost(void* dst, size_t size, std::function<void(Status)> done) const;

  // The contents in place, where they are host memory in dense row-major order (CPU devices).
  // UNIMPLEMENTED or FAILED_PRECONDITION otherwise; then copy with ToHost. Only valid after ReadyEvent, and only as
  // long as this Buffer lives undonated.
  Result<const void*> HostPointer() const;

  // Whether the contents lie on the device as in dense row-major host memory. UNIMPLEMENTED where the plugin cannot
  // say.
  Result<bool> IsDense() const;

  // A copy on another device of this client, ready when its own ReadyEvent is.
  Result<Buffer> CopyToDevice(int device) const;

  // Frees the contents now; executes already enqueued keep them.
  Status Delete();
  // True after Delete and after an execute that took the buffer as donated.
  bool IsDeleted() const;
  void Reset();

 private:
  std::shared_ptr<Client> client_;
  PJRT_Buffer* raw_ = nullptr;
  std::shared_ptr<const TensorType> type_;
  int device_ = -1;
  bool arrives_ = false;                             // set by AsyncBuffer
  std::shared_ptr<const TransferFailure> transfer_;  // of the transfer that fills it; null: none does

  friend class AsyncBuffer;
};

// A buffer whose bytes arrive later: what lets a worker enqueue a computation before its inputs exist.
//
// Ownership: owns the transfer manager. Destroying it before the last transfer poisons the buffer with CANCELLED.
//            Never destroy it from a `done` callback: plugins may wait there for their transfers to end.
// Threads:   Transfer and SetError may be called from any thread, one at a time.
class AsyncBuffer {
 public:
  AsyncBuffer(std::shared_ptr<Client> client, PJRT_AsyncHostToDeviceTransferManager* manager,
              std::shared_ptr<const TensorType> type, int device);
  AsyncBuffer(const AsyncBuffer&) = delete;
  AsyncBuffer& operator=(const AsyncBuffer&) = delete;
  ~AsyncBuffer();

  const TensorType& type() const { return *type_; }
  // The buffer, once; FAILED_PRECONDITION the second time.
  Result<Buffer> TakeBuffer();
  // Writes `size` bytes at `offset` of the array in dense row-major order; where the device keeps it in another one,
  // chunks are collected in host memory and the plugin converts the whole. `data` must stay valid until `done`, which
  // runs exactly once. `last` makes the buffer ready; the chunks before it may come in any order but must have been
  // issued.
  void Transfer(const void* data, size_t size, size_t offset, bool last, std::function<void(Status)> done);
  // The buffer's own memory, dense and row-major, where that is host memory; null otherwise, and before TakeBuffer.
  // What is written there before the last Transfer need not be transferred. Valid as long as this object.
  std::byte* memory() const { return memory_; }
  // Poisons the buffer: everything that depends on it fails with this status. Nothing may be transferred afterwards.
  Status SetError(const Status& error);

 private:
  void TransferLiteral(const void* data, std::function<void(Status)> done);

  const std::shared_ptr<Client> client_;
  PJRT_AsyncHostToDeviceTransferManager* const manager_;
  const std::shared_ptr<const TensorType> type_;
  const int device_;
  const std::shared_ptr<TransferFailure> failure_ = std::make_shared<TransferFailure>();  // shared with the buffer
  std::byte* memory_ = nullptr;
  bool dense_ = true;                                // known from TakeBuffer on
  std::shared_ptr<std::vector<std::byte>> staging_;  // the chunks so far of what is not dense
  bool taken_ = false;
  bool finished_ = false;  // last transfer issued, or poisoned
};

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_BUFFER_H_
