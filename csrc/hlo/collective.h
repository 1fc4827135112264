// What a collective instruction of a partitioned module asks for, and who serves it where no runtime does: on cpu, a
// computation over several hosts is compiled for one device, and its collectives call back into this process.
//
// Ownership: plain values; operands borrow the memory of the call. Threads: see CollectiveBackend.
#ifndef PTPATHWAYS_HLO_COLLECTIVE_H_
#define PTPATHWAYS_HLO_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways::hlo {

enum class CollectiveKind : uint8_t {
  kAllReduce = 1,      // every member: the reduction of all members' inputs
  kAllGather = 2,      // every member: all inputs, joined along one dimension in the group's order
  kReduceScatter = 3,  // member i: block i of what all-reduce would give, split along one dimension
  kAllToAll = 4,       // member i: block i of every member's input, joined in the group's order
  kPermute = 5,        // what the member paired to it has; zeros for one that nobody is paired to
};

enum class Reduction : uint8_t { kSum = 1, kProduct = 2, kMin = 3, kMax = 4, kAnd = 5, kOr = 6, kXor = 7 };

// One instruction, the same on every shard. Shards are the numbers of the partitions of the computation.
struct CollectiveOp {
  CollectiveKind kind{};
  Reduction reduction = Reduction::kSum;  // kAllReduce, kReduceScatter
  uint32_t number = 0;                    // of the instruction in its module
  // Every group meets on its own; a shard is in one group at most. Not for kPermute.
  std::vector<std::vector<uint32_t>> groups;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // kPermute: from, to; each shard at most once on either side
  // kAllToAll: there is an operand for each member, in the group's order, and each is one block.
  bool block_per_operand = false;
};

// One array of an instruction (all-reduce may have several), dense and row-major. Where blocks are joined or split
// along a dimension, the array is `outer` rows (the product of the dimensions before it), each of one block or of as
// many blocks as the group has members: a block's part in a row is contiguous.
struct CollectiveOperand {
  DType dtype{};
  int64_t outer = 1;
  std::span<const std::byte> input;
  std::span<std::byte> output;  // may be the same memory as `input`, and then is all of it
};

class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;
  // One shard's part. `device` is its index in this process, as in pjrt::Client::devices(). Blocks until the outputs
  // are there or the collective has failed. Called on threads of the plugin: one at a time for each device.
  virtual Status Meet(int device, const CollectiveOp& op, std::span<const CollectiveOperand> operands) = 0;
};

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_COLLECTIVE_H_
