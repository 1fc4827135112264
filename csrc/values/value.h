// Value: what a PJRT buffer stands for, a tensor that lies on the devices of its logical device or will; and the
// registry that lets Python name values by number.
//
// A logical device is bound to a slice of one or more devices. On one of several, a value is a whole logical buffer,
// and its tiling says how the tensor lies on them. On one of a single device it is one shard, which is the tensor; its
// other shards, if there are any, belong to the values of other devices (a gang of replicas or partitions).
//
// Most values are born with their shard. Those that come out of a gang whose other devices have not arrived yet are
// pending: they get their shard, or an error, when the gang is submitted (sequencer.h). Whoever acts on a value does so
// through the sequencer of its client, so that it never meets a pending one.
//
// Ownership: shared by PJRT buffers, held work and the registry. A value keeps its ClientState alive.
// Threads:   every method may be called from any thread. Resolve is called once.
// Locks:     cut_once_, while the tensor is cut out of a larger array; the registry's, a leaf.
#ifndef PTPATHWAYS_VALUES_VALUE_H_
#define PTPATHWAYS_VALUES_VALUE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/base/tiling.h"
#include "csrc/client/session.h"
#include "csrc/values/device.h"

namespace pathways::values {

class ClientState;

// A type with what callers ask to see of it, made once and shared by every value and handle of it.
struct ArrayType {
  explicit ArrayType(TensorType of);
  const TensorType type;
  const std::vector<int64_t> minor_to_major;  // row-major
};
using ArrayTypePtr = std::shared_ptr<const ArrayType>;
using DeviceListPtr = std::shared_ptr<const std::vector<uint32_t>>;

class Value;
using ValuePtr = std::shared_ptr<Value>;

class Value {
 public:
  // Pending; of one shard.
  Value(std::shared_ptr<ClientState> client, PJRT_Device* device, ArrayTypePtr type);
  // The same, lying on `devices` as `tiling` says. `tiling` is null exactly when there is one device.
  Value(std::shared_ptr<ClientState> client, PJRT_Device* device, ArrayTypePtr type, TilingPtr tiling,
        DeviceListPtr devices);
  // Resolved; of one shard.
  Value(std::shared_ptr<ClientState> client, PJRT_Device* device, client::Shard shard);
  ~Value();
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;

  const std::shared_ptr<ClientState>& client() const { return client_; }
  PJRT_Device* device() const { return device_; }
  // Of the whole tensor.
  const TensorType& type() const { return type_->type; }
  const ArrayTypePtr& array_type() const { return type_; }
  // Null for a value of one shard.
  const TilingPtr& tiling() const { return tiling_; }
  // The cluster's numbers of the devices that it lies on, by shard.
  const std::vector<uint32_t>& devices() const { return *devices_; }
  const DeviceListPtr& device_list() const { return devices_; }
  // Of what one device holds.
  TensorType shard_type() const { return tiling_ == nullptr ? type() : tiling_->ShardType(type()); }

  void Resolve(Result<client::Shard> shard);
  // The same with a larger array, of which the tensor is the beginning; of a value of one shard. `cut` submits what
  // makes the tensor alone, and is called when somebody asks for the shard first.
  void ResolvePadded(client::Shard padded, std::function<Result<client::Shard>()> cut);
  // That larger array, or null.
  const client::Shard* padded() const;
  // The one shard; for a value with a tiling, the first one, whose buffer holds all. FAILED_PRECONDITION while pending.
  const Result<client::Shard>& shard() const;
  // As a run takes it: whole logical buffers go without naming shards.
  Result<client::ProgramArgument> argument() const;

  // A number that names this value as long as it lives; never 0.
  uint64_t token();

  // The bits of an uploaded scalar, for captured steps, which must know what a number was. Called before it is shared.
  void KeepScalar(const void* bytes, size_t size);
  const std::optional<uint64_t>& scalar() const { return scalar_; }

  // How many PJRT buffers and claims of Python stand for this value; a run takes only what a single one stands for.
  void AddHolder() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void DropHolder() { holders_.fetch_sub(1, std::memory_order_relaxed); }
  bool HasOneHolder() const { return holders_.load(std::memory_order_relaxed) == 1; }
  // From now on no run is given its memory: somebody holds its logical buffer, too.
  void Keep() { AddHolder(); }

 private:
  const std::shared_ptr<ClientState> client_;
  PJRT_Device* const device_;
  const ArrayTypePtr type_;
  const TilingPtr tiling_;
  const DeviceListPtr devices_;
  mutable std::optional<Result<client::Shard>> shard_;  // written before resolved_; where there is cut_, by it
  std::optional<client::Shard> padded_;                 // written before resolved_
  mutable std::function<Result<client::Shard>()> cut_;  // the same
  mutable std::once_flag cut_once_;
  std::atomic<bool> resolved_{false};
  std::atomic<uint64_t> token_{0};
  std::atomic<int> holders_{0};
  std::optional<uint64_t> scalar_;  // constant once shared
};

// Token -> value. FindToken sees every value whose token() was asked for; ClaimToken and ReleaseClaim keep a value
// alive on behalf of Python until something adopts it.
ValuePtr FindToken(uint64_t token);
void ClaimToken(const ValuePtr& value);
// The value, whose hold (AddHolder) passes to the caller; null when there is no such claim.
ValuePtr ReleaseClaim(uint64_t token);
// Registers value under its token. Called by whoever hands the token out.
uint64_t PublishToken(const ValuePtr& value);

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_VALUE_H_
