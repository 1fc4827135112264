#include "csrc/hlo/collective_check.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"
#include "csrc/hlo/replica_groups.h"

namespace pathways::hlo {
namespace {

// Whose ids a collective's groups or pairs hold.
struct IdRange {
  int64_t count;
  std::string_view what;
};

constexpr std::array<std::string_view, 3> kWithGlobalIds = {"all-gather", "all-reduce", "reduce-scatter"};
constexpr std::array<std::string_view, 4> kOthers = {"all-to-all", "collective-broadcast", "collective-permute",
                                                     "ragged-all-to-all"};

bool IsOneOf(std::string_view opcode, std::span<const std::string_view> opcodes) {
  return std::find(opcodes.begin(), opcodes.end(), opcode) != opcodes.end();
}

// XLA's rule (GetCollectiveOpGroupMode).
Result<IdRange> IdsOf(std::string_view instruction, std::string_view opcode, int64_t replicas, int64_t partitions) {
  bool has_channel = false, global_ids = false;
  ProtoReader reader(instruction);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(instruction_field::kChannelId, WireType::kVarint)) has_channel = field.as_int64() > 0;
    if (field.is(instruction_field::kUseGlobalDeviceIds, WireType::kVarint)) global_ids = field.as_bool();
  }
  if (!reader.ok()) return MalformedModule("a collective");
  if (IsOneOf(opcode, kWithGlobalIds)) {
    return global_ids ? IdRange{replicas * partitions, "devices"} : IdRange{replicas, "replicas"};
  }
  return has_channel ? IdRange{partitions, "partitions"} : IdRange{replicas, "replicas"};
}

std::string Counts(int64_t replicas, int64_t partitions) {
  return std::to_string(replicas) + (replicas == 1 ? " replica x " : " replicas x ") + std::to_string(partitions) +
         (partitions == 1 ? " partition" : " partitions");
}

Status CheckInstruction(std::string_view bytes, int64_t replicas, int64_t partitions) {
  PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
  std::string_view opcode = instruction.opcode;
  constexpr std::string_view kStart = "-start";
  if (opcode.ends_with(kStart)) opcode.remove_suffix(kStart.size());
  if (!IsOneOf(opcode, kWithGlobalIds) && !IsOneOf(opcode, kOthers)) return OkStatus();
  PW_ASSIGN_OR_RETURN(const IdRange ids, IdsOf(bytes, opcode, replicas, partitions));
  const Status status = ReadCollectiveFields(bytes, static_cast<uint32_t>(ids.count)).status();
  if (status.code() != Code::kInvalidArgument) return OkStatus();
  const std::string_view advice = ids.what == "replicas"
                                      ? ". For a collective over partitions, give it a channel and, if it is an "
                                        "all-reduce, all-gather or reduce-scatter, use_global_device_ids"
                                      : "";
  return InvalidArgument(std::string(instruction.opcode) + " '" + std::string(instruction.name) + "' names " +
                         std::string(ids.what) + " that the computation does not run on, with " +
                         Counts(replicas, partitions) + ": " + std::string(status.message()) +
                         "; register it for the devices that it was made for" + std::string(advice));
}

// The number in `name = 4`, if the text has one.
std::optional<int64_t> NumberAfter(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(at + name.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" ="), rest.size()));
  int64_t number = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), number).ec != std::errc()) return std::nullopt;
  return number;
}

Result<int64_t> LargestChannel(std::string_view module) {
  int64_t largest = 0;
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const int64_t channel, ReadId(bytes, instruction_field::kChannelId));
      largest = std::max(largest, channel);
    }
  }
  return largest;
}

// Writes one computation anew. The tuple of the results has the id of what it takes the place of.
class Splitter {
 public:
  explicit Splitter(int64_t* largest_channel) : largest_channel_(largest_channel) {}

  Result<std::string> Split(std::string_view computation) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      next_id_ = std::max(next_id_, instruction.id + 1);
    }
    const auto edit = [this](std::string_view bytes) -> Result<bool> {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
      if (instruction.opcode != "all-reduce" || !shape.is_tuple()) return false;
      PW_RETURN_IF_ERROR(SplitOne(bytes, instruction, shape));
      return true;
    };
    PW_RETURN_IF_ERROR(EditInstructions(computation, edit, &out_));
    return std::move(out_).Take();
  }

 private:
  Status SplitOne(std::string_view bytes, const Instruction& instruction, const Shape& shape) {
    PW_ASSIGN_OR_RETURN(const std::vector<int64_t> operands, Integers(bytes, instruction_field::kOperandIds));
    PW_ASSIGN_OR_RETURN(const int64_t channel, ReadId(bytes, instruction_field::kChannelId));
    if (operands.size() != shape.elements.size()) return MalformedModule("an all-reduce");
    std::vector<int64_t> parts;
    std::vector<std::string_view> shardings;
    if (instruction.sharding) {
      PW_ASSIGN_OR_RETURN(shardings, SubMessages(*instruction.sharding, kShardingTuple));
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const int64_t id = next_id_++;
      parts.push_back(id);
      ProtoWriter one;
      if (!CopyFieldsExcept(
              bytes,
              {instruction_field::kName, instruction_field::kShape, instruction_field::kId,
               instruction_field::kOperandIds, instruction_field::kSharding, instruction_field::kChannelId},
              &one)) {
        return MalformedModule("an all-reduce");
      }
      one.Bytes(instruction_field::kName, std::string(instruction.name) + "." + std::to_string(i));
      one.Bytes(instruction_field::kShape, shape.elements[i]);
      one.Int64(instruction_field::kId, id);
      one.Int64(instruction_field::kOperandIds, operands[i]);
      if (channel > 0) one.Int64(instruction_field::kChannelId, ++*largest_channel_);
      if (i < shardings.size()) {
        one.Bytes(instruction_field::kSharding, shardings[i]);
      } else if (instruction.sharding && shardings.empty()) {
        one.Bytes(instruction_field::kSharding, *instruction.sharding);
      }
      out_.Bytes(computation_field::kInstructions, one.bytes());
    }
    ProtoWriter fields;
    if (instruction.sharding) fields.Bytes(instruction_field::kSharding, *instruction.sharding);
    WriteInstruction(instruction.id, instruction.name, "tuple", instruction.shape, parts, fields.bytes(), &out_);
    return OkStatus();
  }

  static constexpr uint32_t kShardingTuple = 5;  // OpSharding.tuple_shardings

  int64_t* const largest_channel_;
  ProtoWriter out_;
  int64_t next_id_ = 1;
};

Result<bool> HasTupleAllReduce(std::string_view module) {
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      if (instruction.opcode != "all-reduce") continue;
      PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
      if (shape.is_tuple()) return true;
    }
  }
  return false;
}

}  // namespace

Status CheckCollectives(std::string_view module, int64_t replicas, int64_t partitions) {
  if (replicas < 1 || partitions < 1 || partitions > std::numeric_limits<uint32_t>::max() / replicas) {
    return InvalidArgument("expected at least one replica and partition, got " + Counts(replicas, partitions));
  }
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : instructions) {
      PW_RETURN_IF_ERROR(CheckInstruction(bytes, replicas, partitions));
    }
  }
  return OkStatus();
}

bool MlirMayMeetDevices(std::string_view module) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "all_reduce",   "all_gather",           "all_to_all", "reduce_scatter", "collective_permute",
      "partition_id", "collective_broadcast", "replica_id", "cross-replica"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [module](std::string_view name) { return module.find(name) != std::string_view::npos; });
}

Status CheckMlirCounts(std::string_view module, int64_t replicas, int64_t partitions) {
  const std::optional<int64_t> made_partitions = NumberAfter(module, "mhlo.num_partitions");
  std::optional<int64_t> made_replicas = NumberAfter(module, "mhlo.num_replicas");
  if (!MlirMayMeetDevices(module)) made_replicas.reset();  // then each replica is a computation of its own
  const bool fits = made_partitions.value_or(partitions) == partitions && made_replicas.value_or(replicas) == replicas;
  if (fits) return OkStatus();
  return InvalidArgument("expected a module made for " + Counts(replicas, partitions) +
                         ", got one whose attributes say " +
                         Counts(made_replicas.value_or(replicas), made_partitions.value_or(partitions)) +
                         "; register it for as many devices as it was made for");
}

Result<std::string> SplitAllReduces(std::string_view module) {
  PW_ASSIGN_OR_RETURN(const bool found, HasTupleAllReduce(module));
  if (!found) return std::string(module);
  PW_ASSIGN_OR_RETURN(int64_t largest_channel, LargestChannel(module));
  return EditComputations(module, [&largest_channel](std::string_view computation, bool) -> Result<std::string> {
    return Splitter(&largest_channel).Split(computation);
  });
}

}  // namespace pathways::hlo
