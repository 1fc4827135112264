#include "csrc/hlo/edit.h"

#include <algorithm>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

// Field numbers of xla_data.proto.
constexpr uint32_t kLiteralShape = 1, kLiteralU32s = 6;

std::string TupleSharding(std::span<const std::string> elements) {
  ProtoWriter out;
  out.Int64(sharding_field::kType, sharding_field::kTuple);
  for (const std::string& element : elements) out.Bytes(sharding_field::kTupleShardings, element);
  return std::move(out).Take();
}

Result<std::string> WithSharding(std::string_view instruction, std::string_view sharding) {
  ProtoWriter out;
  if (!CopyFieldsExcept(instruction, {instruction_field::kSharding}, &out)) return MalformedModule("an instruction");
  out.Bytes(instruction_field::kSharding, sharding);
  return std::move(out).Take();
}

// Writes one entry computation anew: its parameters with shardings, and behind its root a new root that has the
// results' shardings, because the old one may be used elsewhere, or be a parameter with a sharding of its own.
class EntryAnnotator {
 public:
  EntryAnnotator(std::span<const ShardingBytes> parameters, std::span<const ShardingBytes> results)
      : parameters_(parameters), results_(results) {}

  Result<std::string> Annotate(std::string_view computation) {
    PW_ASSIGN_OR_RETURN(root_id_, ReadId(computation, computation_field::kRootId));
    ProtoReader reader(computation);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(computation_field::kInstructions, WireType::kBytes)) {
        PW_RETURN_IF_ERROR(Copy(field.bytes));
      } else if (field.number != computation_field::kRootId) {
        out_.Raw(field.raw);
      }
    }
    if (!reader.ok() || !root_) return MalformedModule("the entry computation with its root");
    if (!results_.empty()) PW_RETURN_IF_ERROR(AddRoot());
    out_.Int64(computation_field::kRootId, root_id_);
    return std::move(out_).Take();
  }

 private:
  Status Copy(std::string_view bytes) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
    next_id_ = std::max(next_id_, instruction.id + 1);
    if (instruction.id == root_id_) root_ = instruction;
    const auto number = static_cast<size_t>(instruction.parameter_number);
    if (instruction.opcode == "parameter" && number < parameters_.size() && parameters_[number]) {
      PW_ASSIGN_OR_RETURN(const std::string edited, WithSharding(bytes, *parameters_[number]));
      out_.Bytes(computation_field::kInstructions, edited);
    } else {
      out_.Bytes(computation_field::kInstructions, bytes);
    }
    return OkStatus();
  }

  Status AddRoot() {
    PW_ASSIGN_OR_RETURN(const std::vector<std::string_view> elements,
                        SubMessages(root_->shape, shape_field::kTupleShapes));
    const std::string old_sharding(root_->sharding.value_or(std::string_view()));
    if (elements.empty()) {
      if (results_[0]) Append("copy", root_->shape, {root_id_}, -1, results_[0]);
      return OkStatus();
    }
    PW_ASSIGN_OR_RETURN(const std::vector<std::string_view> old,
                        SubMessages(old_sharding, sharding_field::kTupleShardings));
    std::vector<std::string> shardings;
    for (size_t i = 0; i < results_.size(); ++i) {
      shardings.push_back(results_[i].value_or(i < old.size() ? std::string(old[i]) : std::string()));
    }
    const int64_t old_root = root_id_;
    std::vector<int64_t> operands;
    for (size_t i = 0; i < elements.size(); ++i) {
      Append("get-tuple-element", elements[i], {old_root}, static_cast<int64_t>(i), std::nullopt);
      operands.push_back(root_id_);
    }
    Append("tuple", root_->shape, operands, -1, TupleSharding(shardings));
    return OkStatus();
  }

  // Adds an instruction and makes it the root.
  void Append(const std::string& opcode, std::string_view shape, const std::vector<int64_t>& operands,
              int64_t tuple_index, const ShardingBytes& sharding) {
    root_id_ = next_id_++;
    ProtoWriter fields;
    if (tuple_index >= 0) fields.Int64(instruction_field::kTupleIndex, tuple_index);
    if (sharding) fields.Bytes(instruction_field::kSharding, *sharding);
    WriteInstruction(root_id_, "laid_out." + std::to_string(root_id_), opcode, shape, operands, fields.bytes(), &out_);
  }

  const std::span<const ShardingBytes> parameters_;
  const std::span<const ShardingBytes> results_;
  ProtoWriter out_;
  std::optional<Instruction> root_;
  int64_t root_id_ = 0;
  int64_t next_id_ = 1;
};

Status CheckCount(size_t got, size_t want, std::string_view what) {
  if (got == 0 || got == want) return OkStatus();
  return InvalidArgument("expected a sharding for each of the " + std::to_string(want) + " " + std::string(what) +
                         " of the module, or none at all, got " + std::to_string(got));
}

}  // namespace

Result<std::string> AnnotateShardings(std::string_view module, std::span<const ShardingBytes> parameters,
                                      std::span<const ShardingBytes> results) {
  PW_ASSIGN_OR_RETURN(const HloModuleInfo info, ReadHloModule(module));
  if (info.parameters_are_tupled && !parameters.empty()) {
    return Unimplemented("expected a module with one parameter per argument, got one whose only parameter is a tuple");
  }
  PW_RETURN_IF_ERROR(CheckCount(parameters.size(), info.parameters.size(), "parameters"));
  PW_RETURN_IF_ERROR(CheckCount(results.size(), info.results.size(), "results"));
  return EditComputations(module, [&](std::string_view computation, bool is_entry) -> Result<std::string> {
    if (!is_entry) return std::string(computation);
    return EntryAnnotator(parameters, results).Annotate(computation);
  });
}

Result<std::string> SetDonors(std::string_view module, std::span<const int64_t> parameters) {
  PW_ASSIGN_OR_RETURN(const HloModuleInfo info, ReadHloModule(module));
  std::vector<int64_t> donors(parameters.begin(), parameters.end());
  std::sort(donors.begin(), donors.end());
  donors.erase(std::unique(donors.begin(), donors.end()), donors.end());
  ProtoWriter entries;
  for (const int64_t donor : donors) {
    if (donor < 0 || donor >= static_cast<int64_t>(info.parameters.size())) {
      return InvalidArgument("expected donors among the " + std::to_string(info.parameters.size()) +
                             " parameters of the module, got number " + std::to_string(donor));
    }
    // XLA refuses a parameter that is both.
    if (std::binary_search(info.aliased_parameters.begin(), info.aliased_parameters.end(), donor)) continue;
    ProtoWriter entry;
    entry.Int64(1, info.parameters_are_tupled ? 0 : donor);  // BufferDonorEntryProto.parameter_number
    if (info.parameters_are_tupled) entry.Int64(2, donor);   // .parameter_shape_index
    entries.Bytes(1, entry.bytes());                         // HloBufferDonorProto.entries
  }
  ProtoWriter out;
  if (!CopyFieldsExcept(module, {module_field::kBufferDonor}, &out)) return MalformedModule("fields");
  if (!entries.bytes().empty()) out.Bytes(module_field::kBufferDonor, entries.bytes());
  return std::move(out).Take();
}

Result<std::string> FixPartition(std::string_view module, uint32_t partition) {
  return EditComputations(module, [partition](std::string_view computation, bool) -> Result<std::string> {
    ProtoWriter out;
    ProtoReader reader(computation);
    ProtoField field;
    while (reader.Next(&field)) {
      if (!field.is(computation_field::kInstructions, WireType::kBytes)) {
        out.Raw(field.raw);
        continue;
      }
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(field.bytes));
      if (instruction.opcode != "partition-id" && instruction.opcode != "replica-id") {
        out.Raw(field.raw);
        continue;
      }
      ProtoWriter literal, constant;
      literal.Bytes(kLiteralShape, instruction.shape);
      literal.Int64(kLiteralU32s, instruction.opcode == "partition-id" ? partition : 0);
      if (!CopyFieldsExcept(field.bytes, {instruction_field::kOpcode}, &constant))
        return MalformedModule("an instruction");
      constant.Bytes(instruction_field::kOpcode, "constant");
      constant.Bytes(instruction_field::kLiteral, literal.bytes());
      out.Bytes(computation_field::kInstructions, constant.bytes());
    }
    if (!reader.ok()) return MalformedModule("a computation");
    return std::move(out).Take();
  });
}

}  // namespace pathways::hlo
