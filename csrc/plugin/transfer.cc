// Buffers: moving their bytes to the host and to other devices.
#include <utility>
#include <vector>

#include "csrc/capture/recorder.h"
#include "csrc/compiled/installed.h"
#include "csrc/plugin/event.h"
#include "csrc/values/buffer.h"
#include "csrc/values/callback_pool.h"
#include "csrc/values/host_layout.h"
#include "csrc/values/transfer.h"

namespace pathways::plugin {

namespace {

std::shared_ptr<Event> FetchNoted(const values::ValuePtr& value, void* destination, uint64_t offset, uint64_t size) {
  if (capture::Recorder::active()) {
    const bool own = capture::Recorder::own();
    capture::Recorder::Note(capture::RecordedFetch{value, own, own ? compiled::CurrentSource() : ""});
  }
  return values::FetchValue(value, destination, offset, size);
}

// Puts a handle of a copy at `made`.
Status CopyTo(const PJRT_Buffer& source, PJRT_Device* device, PJRT_Memory* memory, PJRT_Buffer** made) {
  PW_ASSIGN_OR_RETURN(PJRT_Device * found, source.client->devices().Of(device, memory));
  PW_ASSIGN_OR_RETURN(const values::ValuePtr value, source.Get());
  PW_ASSIGN_OR_RETURN(values::ValuePtr copy, values::CopyValue(value, found));
  if (capture::Recorder::active()) capture::Recorder::Note(capture::RecordedCopy{value, copy});
  *made = new PJRT_Buffer(std::move(copy));
  return OkStatus();
}

}  // namespace

Status Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args* args) {
  return CopyTo(*args->buffer, nullptr, args->dst_memory, &args->dst_buffer);
}

Status Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args* args) {
  return CopyTo(*args->buffer, args->dst_device, nullptr, &args->dst_buffer);
}

Status Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args* args) {
  const TensorType& type = args->src->type;
  const size_t size = static_cast<size_t>(type.ByteSize());
  if (args->dst == nullptr) {  // asks how much room it needs
    args->dst_size = size;
    return OkStatus();
  }
  if (args->dst_size < size) {
    return InvalidArgument("fetching " + type.ToString() + " needs room for " + std::to_string(size) + " bytes, got " +
                           std::to_string(args->dst_size));
  }
  PW_ASSIGN_OR_RETURN(values::ByteStrides strides, values::StridesOf(args->host_layout, type));
  PW_ASSIGN_OR_RETURN(const values::ValuePtr value, args->src->Get());
  if (values::IsRowMajor(type, strides) || type.ElementCount() == 0) {
    args->event = NewEvent(*args->src->client, FetchNoted(value, args->dst, 0, size), true);
    return OkStatus();
  }
  auto dense = std::make_shared<std::vector<char>>(size);
  auto done = Event::Make();
  void* const destination = args->dst;
  FetchNoted(value, dense->data(), 0, size)
      ->OnReady([dense, done, destination, value, strides = std::move(strides)](const Status& status) {
        if (!status.ok()) {
          done->Set(status);
          return;
        }
        values::RunOnPool([dense, done, destination, value, strides] {
          values::CopyElements(value->type(), dense->data(), values::RowMajorStrides(value->type()), destination,
                               strides);
          done->Set(OkStatus());
        });
      });
  args->event = NewEvent(*args->src->client, std::move(done), true);
  return OkStatus();
}

Status Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args* args) {
  const int64_t whole = args->buffer->type.ByteSize();
  if (args->offset < 0 || args->transfer_size < 0 || args->offset > whole - args->transfer_size) {
    return InvalidArgument("expected a range within the buffer's " + std::to_string(whole) + " bytes, got " +
                           std::to_string(args->transfer_size) + " at " + std::to_string(args->offset));
  }
  if (args->dst == nullptr && args->transfer_size > 0) return InvalidArgument("the destination is null");
  PW_ASSIGN_OR_RETURN(const values::ValuePtr value, args->buffer->Get());
  args->event = NewEvent(
      *args->buffer->client,
      FetchNoted(value, args->dst, static_cast<uint64_t>(args->offset), static_cast<uint64_t>(args->transfer_size)),
      true);
  return OkStatus();
}

Status Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args* args) {
  PW_ASSIGN_OR_RETURN(const values::ValuePtr value, args->buffer->Get());
  args->event = NewEvent(*args->buffer->client, values::ReadyOf(value), false);
  return OkStatus();
}

}  // namespace pathways::plugin
