// All kinds of collectives against a plain reference, over random groups, sizes and types, in shared memory and over
// messages.
#include "csrc/collective/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "csrc/collective/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::collective {
namespace {

using hlo::CollectiveKind;
using hlo::CollectiveOp;
using hlo::CollectiveOperand;
using hlo::Reduction;

using Bytes = std::vector<std::byte>;

// A round of one operation over an island: inputs and outputs by shard and operand.
struct Case {
  CollectiveOp op;
  std::vector<Place> shards;
  DType dtype = DType::kS32;
  std::vector<int64_t> outer;               // by operand
  std::vector<int64_t> row;                 // by operand: elements of a block's row
  std::vector<std::vector<Bytes>> inputs;   // by shard and operand
  std::vector<std::vector<Bytes>> outputs;  // empty Bytes: in place
  bool in_place = false;

  uint64_t GroupSize(uint32_t shard) const {
    if (op.kind == CollectiveKind::kPermute || op.groups.empty()) return shards.size();
    return GroupOf(shard).size();
  }
  std::vector<uint32_t> GroupOf(uint32_t shard) const {
    for (const auto& group : op.groups) {
      if (std::find(group.begin(), group.end(), shard) != group.end()) return group;
    }
    std::vector<uint32_t> all(shards.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  uint64_t BlockBytes(size_t k) const { return static_cast<uint64_t>(outer[k] * row[k] * DTypeBytes(dtype)); }
};

uint64_t InputBlocks(const Case& c, uint32_t shard) {
  const bool split = c.op.kind == CollectiveKind::kReduceScatter ||
                     (c.op.kind == CollectiveKind::kAllToAll && !c.op.block_per_operand);
  return split ? c.GroupSize(shard) : 1;
}

uint64_t OutputBlocks(const Case& c, uint32_t shard) {
  const bool joined =
      c.op.kind == CollectiveKind::kAllGather || (c.op.kind == CollectiveKind::kAllToAll && !c.op.block_per_operand);
  return joined ? c.GroupSize(shard) : 1;
}

// Block `index` of `count` in an array, dense.
Bytes BlockOf(const Case& c, size_t k, const Bytes& array, uint64_t index, uint64_t count) {
  const auto row = static_cast<size_t>(c.row[k] * DTypeBytes(c.dtype));
  Bytes block;
  for (int64_t o = 0; o < c.outer[k]; ++o) {
    const std::byte* from = array.data() + (static_cast<uint64_t>(o) * count + index) * row;
    block.insert(block.end(), from, from + row);
  }
  return block;
}

void PutBlock(const Case& c, size_t k, Bytes* array, uint64_t index, uint64_t count, const Bytes& block) {
  if (block.empty()) return;
  const auto row = static_cast<size_t>(c.row[k] * DTypeBytes(c.dtype));
  for (int64_t o = 0; o < c.outer[k]; ++o) {
    std::memcpy(array->data() + (static_cast<uint64_t>(o) * count + index) * row,
                block.data() + static_cast<uint64_t>(o) * row, row);
  }
}

Bytes Reduced(const Case& c, const std::vector<Bytes>& terms) {
  const ReduceFunction reduce = *FindReduction(c.dtype, c.op.reduction);
  Bytes result = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    reduce(result.data(), result.data(), terms[i].data(), result.size() / static_cast<size_t>(DTypeBytes(c.dtype)));
  }
  return result;
}

// What shard `shard` should have in operand k, by the definitions in hlo/collective.h. Values are small integers, so
// the order of additions does not matter.
Bytes Expected(const Case& c, uint32_t shard, size_t k) {
  const auto group = c.GroupOf(shard);
  const auto position = static_cast<uint64_t>(std::find(group.begin(), group.end(), shard) - group.begin());
  const uint64_t n = group.size();
  Bytes result(OutputBlocks(c, shard) * c.BlockBytes(k));
  switch (c.op.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter: {
      std::vector<Bytes> terms;
      for (const uint32_t member : group) {
        const Bytes& input = c.inputs[member][k];
        terms.push_back(c.op.kind == CollectiveKind::kAllReduce ? input : BlockOf(c, k, input, position, n));
      }
      return Reduced(c, terms);
    }
    case CollectiveKind::kAllGather:
      for (uint64_t i = 0; i < n; ++i) PutBlock(c, k, &result, i, n, c.inputs[group[i]][k]);
      return result;
    case CollectiveKind::kAllToAll:
      if (c.op.block_per_operand) return c.inputs[group[k]][position];
      for (uint64_t i = 0; i < n; ++i) {
        PutBlock(c, k, &result, i, n, BlockOf(c, k, c.inputs[group[i]][k], position, n));
      }
      return result;
    case CollectiveKind::kPermute:
      for (const auto& [from, to] : c.op.pairs) {
        if (to == shard) return c.inputs[from][k];
      }
      return result;
  }
  return result;
}

std::vector<Status> RunCase(Island& island, const std::shared_ptr<const Gang>& gang, Case& c) {
  return island.Run(gang, [&](uint32_t shard, Communicator& communicator, int device) {
    std::vector<CollectiveOperand> operands;
    for (size_t k = 0; k < c.inputs[shard].size(); ++k) {
      Bytes& output = c.in_place ? c.inputs[shard][k] : c.outputs[shard][k];
      operands.push_back({c.dtype, c.outer[k], c.inputs[shard][k], output});
    }
    return communicator.Meet(device, c.op, operands);
  });
}

void Fill(Case* c, std::mt19937_64& random) {
  c->inputs.assign(c->shards.size(), {});
  c->outputs.assign(c->shards.size(), {});
  for (uint32_t shard = 0; shard < c->shards.size(); ++shard) {
    for (size_t k = 0; k < c->row.size(); ++k) {
      Bytes input(InputBlocks(*c, shard) * c->BlockBytes(k));
      if (c->dtype == DType::kF32) {
        for (size_t i = 0; i < input.size(); i += 4) {
          const float value = static_cast<float>(random() % 16);
          std::memcpy(input.data() + i, &value, 4);
        }
      } else {
        for (std::byte& byte : input) byte = static_cast<std::byte>(random() % (c->dtype == DType::kPred ? 2 : 256));
      }
      c->inputs[shard].push_back(std::move(input));
      c->outputs[shard].emplace_back(OutputBlocks(*c, shard) * c->BlockBytes(k), std::byte{0xee});
    }
  }
}

Case RandomCase(std::mt19937_64& random, uint32_t hosts, uint32_t devices, int64_t row_max) {
  Case c;
  for (const Place place : Island::Grid(hosts, devices)) c.shards.push_back(place);
  std::shuffle(c.shards.begin(), c.shards.end(), random);
  const auto n = static_cast<uint32_t>(c.shards.size());
  c.op.kind = static_cast<CollectiveKind>(1 + random() % 5);
  c.op.number = static_cast<uint32_t>(random() % 100);
  const DType dtypes[] = {DType::kPred, DType::kS8, DType::kU16, DType::kS32, DType::kF32, DType::kU64};
  c.dtype = dtypes[random() % std::size(dtypes)];
  c.op.reduction = static_cast<Reduction>(1 + random() % (c.dtype == DType::kF32 ? 4 : 7));
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  if (c.op.kind == CollectiveKind::kPermute) {
    std::vector<uint32_t> to = order;
    std::shuffle(to.begin(), to.end(), random);
    for (uint32_t i = 0; i < n; ++i) {
      if (random() % 4 != 0) c.op.pairs.emplace_back(order[i], to[i]);
    }
  } else if (random() % 4 != 0) {
    // Groups of one size, as XLA has them.
    std::vector<uint32_t> sizes;
    for (uint32_t size = 1; size <= n; ++size) {
      if (n % size == 0) sizes.push_back(size);
    }
    const uint32_t size = sizes[random() % sizes.size()];
    for (uint32_t i = 0; i < n; i += size) c.op.groups.emplace_back(order.begin() + i, order.begin() + i + size);
  }
  c.op.block_per_operand = c.op.kind == CollectiveKind::kAllToAll && random() % 2 == 0;
  const bool blocks = c.op.kind != CollectiveKind::kAllReduce && c.op.kind != CollectiveKind::kPermute;
  const size_t operands = c.op.block_per_operand ? c.GroupSize(0) : 1 + random() % 3;
  for (size_t k = 0; k < operands; ++k) {
    const int64_t outer = blocks && random() % 2 ? static_cast<int64_t>(1 + random() % 5) : 1;
    const int64_t row = random() % 8 == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(row_max));
    c.outer.push_back(c.op.block_per_operand && k > 0 ? c.outer[0] : outer);
    c.row.push_back(c.op.block_per_operand && k > 0 ? c.row[0] : row);
  }
  c.in_place = random() % 2 == 0 && InputBlocks(c, 0) == OutputBlocks(c, 0);
  Fill(&c, random);
  return c;
}

void CheckRandomCases(Path path, int cases, uint64_t seed, LaneShape lane, int64_t row_max) {
  std::mt19937_64 random(seed);
  for (uint32_t hosts = 1; hosts <= 4; ++hosts) {
    Island island(hosts, path, std::chrono::seconds(60), lane);
    for (int i = 0; i < cases; ++i) {
      const uint32_t devices = 1 + static_cast<uint32_t>(random() % 3);
      Case c = RandomCase(random, hosts, devices, row_max);
      std::vector<std::vector<Bytes>> expected(c.shards.size());
      for (uint32_t shard = 0; shard < c.shards.size(); ++shard) {
        for (size_t k = 0; k < c.row.size(); ++k) expected[shard].push_back(Expected(c, shard, k));
      }
      const auto gang = Island::MakeGang(c.shards, static_cast<uint64_t>(i) + 1);
      for (const Status& status : RunCase(island, gang, c)) ASSERT_OK(status);
      for (uint32_t shard = 0; shard < c.shards.size(); ++shard) {
        for (size_t k = 0; k < c.row.size(); ++k) {
          const Bytes& got = c.in_place ? c.inputs[shard][k] : c.outputs[shard][k];
          if (got == expected[shard][k]) continue;
          pathways::testing::Fail(__FILE__, __LINE__,
                                  "kind " + std::to_string(static_cast<int>(c.op.kind)) + " of " +
                                      std::string(DTypeName(c.dtype)) + " on " + std::to_string(hosts) +
                                      " hosts, case " + std::to_string(i) + ", shard " + std::to_string(shard) +
                                      ", operand " + std::to_string(k) + " is wrong");
          return;
        }
      }
    }
  }
}

TEST(EveryKindInSharedMemory) { CheckRandomCases(Path::kMemory, 60, 1, {}, 3000); }

TEST(EveryKindThroughSmallRings) { CheckRandomCases(Path::kMemory, 25, 2, {1024, 2}, 20000); }

TEST(EveryKindOverMessages) { CheckRandomCases(Path::kMessages, 20, 3, {8192, 4}, 20000); }

// One all-reduce of f32 over the hosts, a device each.
Case AllReduceOf(uint32_t hosts, int64_t elements, std::mt19937_64& random) {
  Case c;
  c.shards = Island::Grid(hosts, 1);
  c.dtype = DType::kF32;
  c.op.kind = CollectiveKind::kAllReduce;
  c.op.number = 7;
  c.outer = {1};
  c.row = {elements};
  Fill(&c, random);
  return c;
}

TEST(LargeAllReduceMovesTheFewestBytesAndIsEqualEverywhere) {
  std::mt19937_64 random(5);
  for (const uint32_t hosts : {2u, 3u, 4u}) {
    Island island(hosts);
    constexpr int64_t kElements = 1000003;
    Case c = AllReduceOf(hosts, kElements, random);
    for (auto& input : c.inputs) {
      // Values whose sum depends on the order.
      for (size_t i = 0; i < input[0].size(); i += 4) {
        const float value = static_cast<float>(random()) * 1e-9f;
        std::memcpy(input[0].data() + i, &value, 4);
      }
    }
    for (const Status& status : RunCase(island, Island::MakeGang(c.shards, 1), c)) ASSERT_OK(status);
    for (uint32_t host = 0; host < hosts; ++host) {
      EXPECT(c.outputs[host][0] == c.outputs[0][0]);
      // Shares are cut at multiples of 64 bytes: a host may send so much more to each of the others.
      EXPECT_LE(island.host(host).bytes_sent(), uint64_t{2} * (hosts - 1) * (uint64_t{kElements} * 4 / hosts + 64));
    }
  }
}

TEST(EveryMemberGetsTheSameBitsWhateverTheHosts) {
  std::mt19937_64 random(6);
  for (const auto& [hosts, devices] : {std::pair{2u, 2u}, {2u, 3u}, {3u, 2u}}) {
    for (const int64_t elements : {int64_t{513}, int64_t{100003}}) {  // in one hop, and in two
      Island island(hosts);
      Case c = AllReduceOf(hosts * devices, elements, random);
      c.shards = Island::Grid(hosts, devices);
      for (auto& input : c.inputs) {
        for (size_t i = 0; i < input[0].size(); i += 4) {
          const float value = static_cast<float>(random()) * 1e-9f;
          std::memcpy(input[0].data() + i, &value, 4);
        }
      }
      for (const Status& status : RunCase(island, Island::MakeGang(c.shards, 1), c)) ASSERT_OK(status);
      for (const auto& output : c.outputs) EXPECT(output[0] == c.outputs[0][0]);
    }
  }
}

TEST(MeetingsOfOneLaunchFollowEachOther) {
  // As a loop in a computation: the same instruction again and again, small and large in turn.
  Island island(3);
  const auto gang = Island::MakeGang(Island::Grid(3, 2), 1);
  CollectiveOp op;
  op.kind = CollectiveKind::kAllReduce;
  op.number = 1;
  const auto statuses = island.Run(gang, [&](uint32_t shard, Communicator& communicator, int device) {
    for (int i = 0; i < 200; ++i) {
      std::vector<float> values(i % 20 == 0 ? 100000 : 3, static_cast<float>(shard + 1));
      const auto bytes = std::as_writable_bytes(std::span(values));
      const CollectiveOperand operand{DType::kF32, 1, bytes, bytes};
      PW_RETURN_IF_ERROR(communicator.Meet(device, op, {&operand, 1}));
      for (const float value : values) {
        if (value != 21) return Internal("expected 21, got " + std::to_string(value));
      }
    }
    return OkStatus();
  });
  for (const Status& status : statuses) EXPECT_OK(status);
}

}  // namespace
}  // namespace pathways::collective
