// HostBuffers: a simulated host's parts of logical buffers, as types and times: what comes in, goes out or moves.
//
// Ownership: shares each buffer with the runs that use it; borrows the host's site. Threads: none inside; the cluster's
// one thread.
#ifndef PTPATHWAYS_SIM_HOST_BUFFERS_H_
#define PTPATHWAYS_SIM_HOST_BUFFERS_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/sim/host_site.h"
#include "csrc/sim/value.h"
#include "csrc/store/memory_account.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::sim {

struct Shard {
  uint32_t number = 0;  // in the logical buffer
  uint32_t device = 0;  // cluster-wide
  int64_t bytes = 0;
  std::shared_ptr<Value> value;
};

// This host's part of a logical buffer. Its bytes are accounted as long as somebody holds it.
struct Buffer {
  Buffer(std::shared_ptr<store::MemoryAccount> held_in, uint32_t first, uint32_t owner)
      : account(std::move(held_in)), first_device(first), client(owner) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  void Add(Shard shard);
  // Gives a shard that was added without bytes its bytes and value.
  void Fill(size_t position, int64_t bytes, std::shared_ptr<Value> value);
  const Shard* Find(uint32_t number) const;
  void SetSpilled(bool now);

  const std::shared_ptr<store::MemoryAccount> account;
  const uint32_t first_device;
  const uint32_t client;
  std::vector<Shard> shards;
  Status error;
  bool spilled = false;
};
using BufferPtr = std::shared_ptr<Buffer>;

class HostBuffers {
 public:
  explicit HostBuffers(const HostSite& site) : site_(site) {}

  // Messages of the controller:
  void On(const wire::Put& put);
  void On(const wire::Fetch& fetch);
  void On(const wire::Copy& copy);
  void On(const wire::Expect& expect);
  void On(const wire::Free& request);
  void On(const wire::Spill& request) { SetSpilled(request.buffers, true); }
  void On(const wire::Restore& request) { SetSpilled(request.buffers, false); }
  // Says in `reply` what a device holds.
  void AnswerMemory(uint32_t device, wire::Reply& reply) const;

  // For runs, a buffer that is not kept yet: empty, or what stands for one that will never be.
  BufferPtr Make(uint64_t id) const;
  BufferPtr MakeFailed(const Status& status) const;
  void Keep(uint64_t id, BufferPtr buffer) { buffers_[id] = std::move(buffer); }
  void KeepFailed(uint64_t id, const Status& status, bool tell_client);
  void Erase(uint64_t id) { buffers_.erase(id); }
  // With what is missing said, as a worker would.
  Result<BufferPtr> Find(uint64_t id) const;
  Result<const Shard*> FindShard(const Buffer& buffer, uint32_t number) const;
  std::shared_ptr<Value> CopyLocally(const std::shared_ptr<Value>& source, int64_t bytes) const;

  void DropClient(uint32_t client);
  void Clear() { buffers_.clear(); }
  size_t size() const { return buffers_.size(); }

 private:
  // Whether a tensor can come to this device.
  Status CheckIncoming(uint32_t device, const TensorType& type) const;
  void SetSpilled(const std::vector<uint64_t>& buffers, bool spilled);

  const HostSite& site_;
  std::unordered_map<uint64_t, BufferPtr> buffers_;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_HOST_BUFFERS_H_
