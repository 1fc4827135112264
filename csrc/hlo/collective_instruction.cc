#include "csrc/hlo/collective_instruction.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "csrc/hlo/replica_groups.h"

namespace pathways::hlo {
namespace {

struct KnownKind {
  std::string_view opcode;
  CollectiveKind kind;
};
constexpr std::array<KnownKind, 5> kKinds = {{{"all-reduce", CollectiveKind::kAllReduce},
                                              {"all-gather", CollectiveKind::kAllGather},
                                              {"reduce-scatter", CollectiveKind::kReduceScatter},
                                              {"all-to-all", CollectiveKind::kAllToAll},
                                              {"collective-permute", CollectiveKind::kPermute}}};

struct KnownReduction {
  std::string_view opcode;
  Reduction reduction;
};
constexpr std::array<KnownReduction, 7> kReductions = {{{"add", Reduction::kSum},
                                                        {"multiply", Reduction::kProduct},
                                                        {"minimum", Reduction::kMin},
                                                        {"maximum", Reduction::kMax},
                                                        {"and", Reduction::kAnd},
                                                        {"or", Reduction::kOr},
                                                        {"xor", Reduction::kXor}}};

Result<std::optional<Reduction>> ReductionOf(std::string_view computation) {
  PW_ASSIGN_OR_RETURN(const int64_t root, ReadId(computation, computation_field::kRootId));
  PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
  if (instructions.size() != 3) return std::optional<Reduction>();  // two parameters and the operation
  for (const std::string_view bytes : instructions) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
    if (instruction.id != root) {
      if (instruction.opcode != "parameter") return std::optional<Reduction>();
      continue;
    }
    for (const KnownReduction& known : kReductions) {
      if (known.opcode == instruction.opcode) return std::optional(known.reduction);
    }
  }
  return std::optional<Reduction>();
}

std::string Array(const std::vector<int64_t>& numbers) {
  std::string text = "array<i64";
  for (size_t i = 0; i < numbers.size(); ++i) text += (i == 0 ? ": " : ", ") + std::to_string(numbers[i]);
  return text + ">";
}

}  // namespace

bool IsCollective(std::string_view opcode) {
  return std::any_of(kKinds.begin(), kKinds.end(), [opcode](const KnownKind& known) { return known.opcode == opcode; });
}

Result<Reductions> ReadReductions(std::string_view module) {
  Reductions out;
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(computation, computation_field::kId));
    PW_ASSIGN_OR_RETURN(out[id], ReductionOf(computation));
  }
  return out;
}

Result<CollectiveInstruction> ReadCollective(std::string_view bytes, std::string_view opcode,
                                             const Reductions& reductions, uint32_t shards) {
  CollectiveInstruction out;
  for (const KnownKind& known : kKinds) {
    if (known.opcode == opcode) out.op.kind = known.kind;
  }
  PW_ASSIGN_OR_RETURN(CollectiveFields fields, ReadCollectiveFields(bytes, shards));
  out.operands = std::move(fields.operands);
  out.op.pairs = std::move(fields.pairs);
  ReplicaGroups& groups = fields.groups;
  const bool reduces = out.op.kind == CollectiveKind::kAllReduce || out.op.kind == CollectiveKind::kReduceScatter;
  if (reduces) {
    const auto found = fields.called.empty() ? reductions.end() : reductions.find(fields.called[0]);
    if (found == reductions.end() || !found->second) {
      return Unimplemented(std::string(opcode) +
                           " by a computation other than add, multiply, minimum, maximum, and, or, xor");
    }
    out.op.reduction = *found->second;
  }
  if (out.op.kind == CollectiveKind::kPermute) {
    if (fields.has_channel || out.op.pairs.empty()) return out;
    out.op.pairs.clear();  // from the only replica to itself, on every shard
    for (uint32_t shard = 0; shard < shards; ++shard) out.op.pairs.emplace_back(shard, shard);
    return out;
  }
  // Groups are of partitions when the ids are global ones, or an all-to-all has a channel; otherwise they are of
  // replicas, of which there is one: with a channel it stands for all its partitions, without one for the shard alone.
  const bool of_partitions = fields.has_channel && (fields.global_ids || out.op.kind == CollectiveKind::kAllToAll);
  if (groups.empty() || !of_partitions) {
    groups.clear();
    std::vector<uint32_t> all(shards);
    std::iota(all.begin(), all.end(), 0);
    if (fields.has_channel) {
      groups.push_back(std::move(all));
    } else {
      for (const uint32_t shard : all) groups.push_back({shard});
    }
  }
  std::vector<char> named(shards, 0);
  for (const auto& group : groups) {
    for (const uint32_t shard : group) {
      if (std::exchange(named[shard], 1)) return MalformedModule("groups that name a shard once");
    }
  }
  out.op.groups = std::move(groups);
  if (!fields.dimensions.empty()) out.dimension = fields.dimensions[0];
  out.op.block_per_operand = out.op.kind == CollectiveKind::kAllToAll && fields.dimensions.empty();
  return out;
}

std::string CollectiveAttributes(const CollectiveOp& op, const std::vector<int64_t>& outer) {
  std::vector<int64_t> members, sizes;
  if (op.kind == CollectiveKind::kPermute) {
    for (const auto& [from, to] : op.pairs) members.insert(members.end(), {from, to});
  }
  for (const auto& group : op.groups) {
    sizes.push_back(static_cast<int64_t>(group.size()));
    members.insert(members.end(), group.begin(), group.end());
  }
  const auto number = [](int64_t value) { return std::to_string(value) + " : i64"; };
  return "{block_per_operand = " + number(op.block_per_operand) + ", kind = " + number(static_cast<int64_t>(op.kind)) +
         ", members = " + Array(members) + ", number = " + number(op.number) + ", outer = " + Array(outer) +
         ", reduction = " + number(static_cast<int64_t>(op.reduction)) + ", sizes = " + Array(sizes) + "}";
}

}  // namespace pathways::hlo
