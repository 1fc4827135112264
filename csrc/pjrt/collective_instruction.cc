#include "csrc/pjrt/collective_instruction.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace pathways::pjrt {
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

using Groups = std::vector<std::vector<uint32_t>>;
constexpr size_t kMaxRank = 16;  // of iota replica groups

bool Append(const ProtoField& field, std::vector<int64_t>* out) {
  return ForEachInt64(field, [out](int64_t value) { out->push_back(value); });
}

Result<std::vector<uint32_t>> ToShards(const std::vector<int64_t>& ids, uint32_t shards) {
  std::vector<uint32_t> out;
  for (const int64_t id : ids) {
    if (id < 0 || id >= int64_t{shards}) {
      return InvalidArgument("expected a collective among the shards 0 to " + std::to_string(shards - 1) + ", got " +
                             std::to_string(id));
    }
    out.push_back(static_cast<uint32_t>(id));
  }
  return out;
}

// ReplicaGroup.replica_ids
Status ReadGroup(std::string_view bytes, uint32_t shards, Groups* out) {
  std::vector<int64_t> ids;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.number == 1 && !Append(field, &ids)) return MalformedModule("a replica group");
  }
  if (!reader.ok()) return MalformedModule("a replica group");
  PW_ASSIGN_OR_RETURN(std::vector<uint32_t> group, ToShards(ids, shards));
  out->push_back(std::move(group));
  return OkStatus();
}

// The numbers from 0 on, arranged as an array of shape `dims`, transposed, and cut into groups. False: they do not fit.
bool CutIntoGroups(const std::vector<int64_t>& dims, const std::vector<int64_t>& transpose, int64_t group_size,
                   uint32_t shards, Groups* out) {
  const size_t rank = dims.size();
  if (rank > kMaxRank || transpose.size() != rank || group_size < 1) return false;
  std::vector<int64_t> sorted = transpose;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < rank; ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) return false;
  }
  std::array<int64_t, kMaxRank> strides{};
  int64_t count = 1;
  for (size_t i = rank; i-- > 0;) {
    if (dims[i] < 1 || dims[i] > int64_t{shards}) return false;
    strides[i] = count;
    count *= dims[i];
    if (count > int64_t{shards}) return false;
  }
  if (count % group_size != 0) return false;
  for (int64_t at = 0; at < count; ++at) {
    int64_t number = 0, rest = at;  // `at` counts in the transposed array
    for (size_t i = rank; i-- > 0;) {
      const auto axis = static_cast<size_t>(transpose[i]);
      number += rest % dims[axis] * strides[axis];
      rest /= dims[axis];
    }
    if (at % group_size == 0) out->emplace_back();
    out->back().push_back(static_cast<uint32_t>(number));
  }
  return true;
}

// IotaReplicaGroupListProto
Status ReadIota(std::string_view bytes, uint32_t shards, Groups* out) {
  int64_t groups = 0, group_size = 0;
  std::vector<int64_t> reshape, transpose;
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kVarint)) groups = field.as_int64();
    if (field.is(2, WireType::kVarint)) group_size = field.as_int64();
    if (field.number == 3) ok = ok && Append(field, &reshape);
    if (field.number == 4) ok = ok && Append(field, &transpose);
  }
  ok = ok && reader.ok() && CutIntoGroups(reshape, transpose, group_size, shards, out);
  return ok && static_cast<int64_t>(out->size()) == groups ? OkStatus() : MalformedModule("replica groups");
}

// A mesh's axis, or a factor of it.
struct AxisPart {
  int64_t axis = 0;
  int64_t before = 1;  // product of the parts of the axis before it
  int64_t size = 0;    // 0: the whole axis
};

// AxisRefProto, with its SubAxis
bool ReadAxisPart(std::string_view bytes, AxisPart* out) {
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kVarint)) out->axis = field.as_int64();
    if (!field.is(2, WireType::kBytes)) continue;
    ProtoReader part(field.bytes);
    ProtoField number;
    while (part.Next(&number)) {
      if (number.is(1, WireType::kVarint)) out->before = number.as_int64();
      if (number.is(2, WireType::kVarint)) out->size = number.as_int64();
    }
    if (!part.ok()) return false;
  }
  return reader.ok();
}

// MeshProto: sizes of its axes, and the ids of its devices when they are not in order.
Status ReadMesh(std::string_view bytes, std::vector<int64_t>* sizes, std::vector<int64_t>* ids) {
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(const int64_t size, ReadId(field.bytes, 2));
      sizes->push_back(size);
    } else if (field.number == 2) {
      ok = ok && Append(field, ids);
    } else {
      return Unimplemented("collectives over a mesh in a form newer than this version knows");
    }
  }
  return reader.ok() && ok ? OkStatus() : MalformedModule("a mesh");
}

// The lengths into which the axis is cut by the parts that are named of it; empty when they do not fit.
std::vector<int64_t> CutAxis(int64_t axis, int64_t length, const std::vector<AxisPart>& named) {
  std::vector<int64_t> cuts = {1, length};
  for (const AxisPart& part : named) {
    if (part.axis != axis || part.size == 0) continue;
    cuts.push_back(part.before);
    cuts.push_back(part.before * part.size);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<int64_t> lengths;
  for (size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i - 1] < 1 || cuts[i] % cuts[i - 1] != 0) return {};
    lengths.push_back(cuts[i] / cuts[i - 1]);
  }
  if (lengths.empty()) lengths.push_back(1);
  return cuts.back() == length || length == 1 ? lengths : std::vector<int64_t>();
}

// MeshAxesReplicaGroupListProto: the devices that differ only along the named axes are a group, in the axes' order.
Status ReadMeshAxes(std::string_view bytes, uint32_t shards, Groups* out) {
  std::vector<int64_t> sizes, ids;
  std::vector<AxisPart> named;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) PW_RETURN_IF_ERROR(ReadMesh(field.bytes, &sizes, &ids));
    if (!field.is(2, WireType::kBytes)) continue;
    if (!ReadAxisPart(field.bytes, &named.emplace_back())) return MalformedModule("an axis");
  }
  std::vector<int64_t> dims, transpose, inside(named.size(), -1);
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    int64_t before = 1;
    for (const int64_t length : CutAxis(static_cast<int64_t>(axis), sizes[axis], named)) {
      bool in_group = false;
      for (size_t i = 0; i < named.size(); ++i) {
        const int64_t whole = named[i].size == 0 ? sizes[axis] : named[i].size;
        if (named[i].axis != static_cast<int64_t>(axis) || named[i].before != before || whole != length) continue;
        inside[i] = static_cast<int64_t>(dims.size());
        in_group = true;
      }
      if (!in_group) transpose.push_back(static_cast<int64_t>(dims.size()));
      dims.push_back(length);
      before *= length;
    }
  }
  int64_t group_size = 1;
  for (const int64_t dim : inside) {
    if (dim < 0) return MalformedModule("axes of the mesh");
    transpose.push_back(dim);
    group_size *= dims[static_cast<size_t>(dim)];
  }
  if (!reader.ok() || !CutIntoGroups(dims, transpose, group_size, shards, out)) return MalformedModule("mesh axes");
  if (ids.empty()) return OkStatus();
  PW_ASSIGN_OR_RETURN(const std::vector<uint32_t> devices, ToShards(ids, shards));
  for (auto& group : *out) {
    for (uint32_t& member : group) {
      if (member >= devices.size()) return MalformedModule("the devices of a mesh");
      member = devices[member];
    }
  }
  return OkStatus();
}

// CollectiveDeviceListProto
Status ReadDeviceList(std::string_view bytes, uint32_t shards, Groups* out) {
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) PW_RETURN_IF_ERROR(ReadGroup(field.bytes, shards, out));
    if (field.is(2, WireType::kBytes)) PW_RETURN_IF_ERROR(ReadIota(field.bytes, shards, out));
    if (field.number > 2) return Unimplemented("collectives with groups in a form newer than this version knows");
  }
  return reader.ok() ? OkStatus() : MalformedModule("a list of devices");
}

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

// What the instruction's fields say, before they are made sense of.
struct CollectiveFields {
  Groups old_groups, groups;
  std::vector<int64_t> dimensions, called;
  bool has_channel = false, global_ids = false;
};

Status ReadFields(std::string_view bytes, uint32_t shards, CollectiveFields* out, CollectiveInstruction* instruction) {
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    switch (field.number) {
      case instruction_field::kDimensions:
        ok = ok && Append(field, &out->dimensions);
        break;
      case instruction_field::kOperandIds:
        ok = ok && Append(field, &instruction->operands);
        break;
      case instruction_field::kCalledComputationIds:
        ok = ok && Append(field, &out->called);
        break;
      case instruction_field::kChannelId:
        out->has_channel = field.as_int64() > 0;
        break;
      case instruction_field::kUseGlobalDeviceIds:
        out->global_ids = field.as_bool();
        break;
      case instruction_field::kReplicaGroups:
        PW_RETURN_IF_ERROR(ReadGroup(field.bytes, shards, &out->old_groups));
        break;
      case instruction_field::kCollectiveDeviceList:
        PW_RETURN_IF_ERROR(ReadDeviceList(field.bytes, shards, &out->groups));
        break;
      case instruction_field::kIotaDeviceList:
        PW_RETURN_IF_ERROR(ReadIota(field.bytes, shards, &out->groups));
        break;
      case instruction_field::kMeshAxesDeviceList:
        PW_RETURN_IF_ERROR(ReadMeshAxes(field.bytes, shards, &out->groups));
        break;
      case instruction_field::kSourceTargetPairs: {
        int64_t source = 0, target = 0;
        ProtoReader pair(field.bytes);
        ProtoField part;
        while (pair.Next(&part)) {
          if (part.is(1, WireType::kVarint)) source = part.as_int64();
          if (part.is(2, WireType::kVarint)) target = part.as_int64();
        }
        PW_ASSIGN_OR_RETURN(const auto ends, ToShards({source, target}, shards));
        instruction->op.pairs.emplace_back(ends[0], ends[1]);
        ok = ok && pair.ok();
        break;
      }
      default:
        // To take groups of an unknown form for no groups would mean all shards.
        if (field.number > instruction_field::kMeshAxesDeviceList) {
          return Unimplemented("collectives with a field newer than this version knows");
        }
        break;
    }
  }
  return reader.ok() && ok ? OkStatus() : MalformedModule("a collective");
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
  CollectiveFields fields;
  PW_RETURN_IF_ERROR(ReadFields(bytes, shards, &fields, &out));
  Groups& groups = fields.groups.empty() ? fields.old_groups : fields.groups;
  const bool reduces = out.op.kind == CollectiveKind::kAllReduce || out.op.kind == CollectiveKind::kReduceScatter;
  if (reduces) {
    const auto found = fields.called.empty() ? reductions.end() : reductions.find(fields.called[0]);
    if (found == reductions.end() || !found->second) {
      return Unimplemented(std::string(opcode) +
                           " by a computation other than add, multiply, minimum, maximum, and, or, xor");
    }
    out.op.reduction = *found->second;
  }
  if (out.op.kind == CollectiveKind::kPermute) return out;
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

}  // namespace pathways::pjrt
