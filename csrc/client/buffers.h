// Buffers: logical buffers that the client makes: values that it uploads now or later, that hosts get by themselves,
// and copies. Drops what handles leave.
//
// Ownership: owned by the session; borrows the parts below it. Threads: any. Locks: the session's (core.h).
#ifndef PTPATHWAYS_CLIENT_BUFFERS_H_
#define PTPATHWAYS_CLIENT_BUFFERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "csrc/base/host_memory.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/logical_buffer.h"
#include "csrc/client/transfers.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

class Buffers {
 public:
  Buffers(Core& core, Transfers& transfers) : core_(core), transfers_(transfers) {}

  // Copies `data` (dense row-major, type.ByteSize() bytes) before returning; never waits for the worker.
  Result<Shard> Put(uint32_t device, const TensorType& type, const void* data);
  // One logical buffer of many shards: shard i is the dense value at data[i], on devices[i].
  Result<std::shared_ptr<LogicalBuffer>> PutSharded(const std::vector<uint32_t>& devices, const TensorType& shard_type,
                                                    std::span<const void* const> data);
  // A buffer whose bytes come later, in any order of offsets, through Fill; or never, through Fail.
  Result<Shard> Declare(uint32_t device, const TensorType& type);
  Status Fill(const Shard& shard, uint64_t offset, const void* data, uint64_t size, bool last);
  Status Fail(const Shard& shard, const Status& status);
  // A logical buffer whose bytes its hosts get by themselves: from an input pipeline, or by a Load. The transfer of
  // shard i has the key id + i.
  Result<std::shared_ptr<LogicalBuffer>> Announce(const std::vector<uint32_t>& devices, const TensorType& shard_type);
  // Worker to worker; the bytes pass neither client nor controller.
  Result<Shard> Copy(const Shard& source, uint32_t device);
  // Its last handle is gone.
  void Drop(const LogicalBuffer& buffer) noexcept;

  uint64_t copies() const { return copies_; }  // so far
  void OnFailed(const wire::BufferFailed& failed);

 private:
  // Makes a logical buffer and sends the PUT of each shard, with its value if there is `data`.
  Result<std::shared_ptr<LogicalBuffer>> Make(const std::vector<uint32_t>& devices, const TensorType& type,
                                              std::span<const void* const> data);

  Core& core_;
  Transfers& transfers_;
  // Bytes so far of declared buffers, by id.
  std::unordered_map<uint64_t, std::shared_ptr<HostMemory>> declared_ PW_GUARDED_BY(core_.mutex);
  std::atomic<uint64_t> copies_{0};
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_BUFFERS_H_
