#include "csrc/client/logical_buffer.h"

#include "csrc/client/session.h"

namespace pathways::client {

LogicalBuffer::LogicalBuffer(std::shared_ptr<Session> session, uint64_t id, std::vector<uint32_t> devices,
                             TensorType shard_type, std::shared_ptr<Event> ready)
    : session_(std::move(session)),
      id_(id),
      devices_(std::move(devices)),
      shard_type_(std::move(shard_type)),
      ready_(std::move(ready)) {}

LogicalBuffer::~LogicalBuffer() { session_->buffers().Drop(*this); }

Status LogicalBuffer::CheckHeld() const {
  if (!given_up()) return OkStatus();
  return Status(Code::kOutOfRange, "a value " + shard_type_.ToString() +
                                       " was given up (donated) to an earlier run: use what that run gave, or pass a "
                                       "value that still exists");
}

}  // namespace pathways::client
