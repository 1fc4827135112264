// LogicalBuffer: a client's handle of a value in the cluster, and Shard, one of its shards.
//
// Ownership: shared; keeps its session. Threads: any. Locks: none.
#ifndef PTPATHWAYS_CLIENT_LOGICAL_BUFFER_H_
#define PTPATHWAYS_CLIENT_LOGICAL_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways::client {

class Session;

// One handle and one reference count per logical buffer, whatever its number of shards. Dropping the last reference
// frees the buffer on its workers, batched with other frees and ordered after every run submitted before.
class LogicalBuffer {
 public:
  LogicalBuffer(std::shared_ptr<Session> session, uint64_t id, std::vector<uint32_t> devices, TensorType shard_type,
                std::shared_ptr<Event> ready);
  ~LogicalBuffer();
  LogicalBuffer(const LogicalBuffer&) = delete;
  LogicalBuffer& operator=(const LogicalBuffer&) = delete;

  uint64_t id() const { return id_; }
  const std::vector<uint32_t>& devices() const { return devices_; }  // shard i lies on devices()[i]
  const TensorType& shard_type() const { return shard_type_; }
  // The event of the run that produces it; nullptr for uploads, whose readiness is asked for by Transfers::Ready.
  const std::shared_ptr<Event>& ready() const { return ready_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  // Whether a run has been given its memory: nothing can be done with it any more.
  bool given_up() const { return given_up_.load(std::memory_order_relaxed); }
  void GiveUp() { given_up_.store(true, std::memory_order_relaxed); }
  // OUT_OF_RANGE: it was given up.
  Status CheckHeld() const;
  // How the run that produces it ended; none while it runs, and for uploads.
  std::optional<Status> Outcome() const { return ready_ ? ready_->TryGet() : std::nullopt; }

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
  const std::vector<uint32_t> devices_;
  const TensorType shard_type_;
  const std::shared_ptr<Event> ready_;
  std::atomic<bool> given_up_{false};
};

// One shard of a logical buffer: what a PJRT buffer stands for.
struct Shard {
  std::shared_ptr<LogicalBuffer> buffer;
  uint32_t index = 0;

  uint32_t device() const { return buffer->devices()[index]; }
  const TensorType& type() const { return buffer->shard_type(); }
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_LOGICAL_BUFFER_H_
