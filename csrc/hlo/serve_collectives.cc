#include "csrc/hlo/serve_collectives.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "csrc/base/tensor_type.h"
#include "csrc/hlo/collective_instruction.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

// The array's type; nothing for a tuple.
Result<TensorType> TypeOf(std::string_view shape_bytes) {
  PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(shape_bytes));
  TensorType type{DTypeFromXlaPrimitive(shape.element_type), shape.dims};
  if (type.dtype == DType::kInvalid || shape.dynamic) {
    return Unimplemented("collectives on arrays of XLA element type " + std::to_string(shape.element_type) +
                         (shape.dynamic ? " and dynamic shape" : ""));
  }
  return type;
}

// Which computations meet other devices, themselves or in those they call.
Result<std::set<int64_t>> ComputationsThatMeet(std::string_view module) {
  std::map<int64_t, std::vector<int64_t>> callers;
  std::vector<int64_t> found;
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(computation, computation_field::kId));
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      if (IsCollective(instruction.opcode)) {
        found.push_back(id);
        continue;
      }
      ProtoReader reader(bytes);
      ProtoField field;
      while (reader.Next(&field)) {
        if (field.number != instruction_field::kCalledComputationIds) continue;
        ForEachInt64(field, [&](int64_t called) { callers[called].push_back(id); });
      }
    }
  }
  std::set<int64_t> out;
  while (!found.empty()) {
    const int64_t id = found.back();
    found.pop_back();
    if (!out.insert(id).second) continue;
    const std::vector<int64_t>& above = callers[id];
    found.insert(found.end(), above.begin(), above.end());
  }
  return out;
}

// Writes one computation anew. New instructions get ids above all old ones; what took the place of an old one has its
// id, so that those that use it need no change.
class Rewriter {
 public:
  Rewriter(const Reductions& reductions, const std::set<int64_t>& meeting, uint32_t shards, ServedModule* served)
      : reductions_(reductions), meeting_(meeting), shards_(shards), served_(served) {}

  // `ticket`: number of the parameter to add, in the entry computation.
  Result<std::string> Rewrite(std::string_view computation, std::optional<int64_t> ticket) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      next_id_ = std::max(next_id_, instruction.id + 1);
      shapes_[instruction.id] = instruction.shape;
    }
    if (ticket) AddTicket(*ticket);
    ProtoReader reader(computation);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(computation_field::kInstructions, WireType::kBytes)) {
        PW_RETURN_IF_ERROR(Copy(field.bytes, field.raw));
      } else if (ticket && field.is(computation_field::kProgramShape, WireType::kBytes)) {
        out_.Bytes(computation_field::kProgramShape, WithTicket(field.bytes));
      } else {
        out_.Raw(field.raw);
      }
    }
    if (!reader.ok()) return MalformedModule("a computation");
    return std::move(out_).Take();
  }

  static std::string WithTicket(std::string_view program_shape) {
    return WithParameter(program_shape, ArrayShape(DType::kU32, {}), kTicket);
  }

 private:
  static constexpr std::string_view kTicket = "shard_number";

  void AddTicket(int64_t number) {
    ticket_ = next_id_++;
    ProtoWriter fields;
    fields.Int64(instruction_field::kParameterNumber, number);
    WriteInstruction(*ticket_, std::string(kTicket), "parameter", ArrayShape(DType::kU32, {}), {}, fields.bytes(),
                     &out_);
  }

  Status Copy(std::string_view bytes, std::string_view raw) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
    if (IsCollective(instruction.opcode)) return Serve(bytes, instruction);
    if (instruction.opcode == "partition-id") {
      if (ticket_) {
        WriteInstruction(instruction.id, std::string(instruction.name), "reshape", instruction.shape, {*ticket_}, "",
                         &out_);
        return OkStatus();
      }
      served_->differs_inside = true;
    }
    if (instruction.opcode == "replica-id") served_->differs_inside = true;
    return CopyOther(bytes, raw);
  }

  // An instruction in which other collectives stand, such as a loop, takes its turn among those of this computation.
  Status CopyOther(std::string_view bytes, std::string_view raw) {
    bool meets = false;
    int64_t id = 0;
    ProtoReader reader(bytes);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(instruction_field::kId, WireType::kVarint)) id = field.as_int64();
      if (field.number != instruction_field::kCalledComputationIds) continue;
      ForEachInt64(field, [&](int64_t called) { meets = meets || meeting_.contains(called); });
    }
    if (!meets) {
      out_.Raw(raw);
      return OkStatus();
    }
    ProtoWriter edited;
    edited.Raw(bytes);
    if (last_) edited.Int64(instruction_field::kControlPredecessors, *last_);
    out_.Bytes(computation_field::kInstructions, edited.bytes());
    last_ = id;
    chain_.reset();
    return OkStatus();
  }

  Status Serve(std::string_view bytes, const Instruction& instruction) {
    PW_ASSIGN_OR_RETURN(CollectiveInstruction collective,
                        ReadCollective(bytes, instruction.opcode, reductions_, shards_));
    collective.op.number = static_cast<uint32_t>(served_->collectives++);
    PW_ASSIGN_OR_RETURN(const Shape result, ReadShape(instruction.shape));
    std::vector<std::string_view> result_shapes = result.elements;
    if (!result.is_tuple()) result_shapes.push_back(instruction.shape);
    if (result_shapes.size() != collective.operands.size()) {
      return Unimplemented(std::string(instruction.opcode) + " with " + std::to_string(collective.operands.size()) +
                           " operands and " + std::to_string(result_shapes.size()) + " results");
    }
    std::vector<std::string> operand_shapes, results;
    std::vector<int64_t> outer;
    for (size_t i = 0; i < result_shapes.size(); ++i) {
      PW_ASSIGN_OR_RETURN(const TensorType from, TypeOf(shapes_[collective.operands[i]]));
      PW_ASSIGN_OR_RETURN(const TensorType to, TypeOf(result_shapes[i]));
      operand_shapes.push_back(ArrayShape(from.dtype, from.dims));
      results.push_back(ArrayShape(to.dtype, to.dims));
      int64_t rows = 1;
      for (int64_t d = 0; d < collective.dimension && d < static_cast<int64_t>(from.dims.size()); ++d) {
        rows *= from.dims[static_cast<size_t>(d)];
      }
      outer.push_back(rows);
    }
    const std::vector<std::string> data = results;
    std::vector<int64_t> operands = collective.operands;
    if (chain_) {
      operands.push_back(*chain_);
      operand_shapes.push_back(ArrayShape(DType::kU32, {}));
    }
    results.push_back(ArrayShape(DType::kU32, {}));
    PW_ASSIGN_OR_RETURN(const auto metadata, SubMessages(bytes, instruction_field::kMetadata));
    const int64_t call = next_id_++;
    ProtoWriter fields;
    if (!metadata.empty()) fields.Bytes(instruction_field::kMetadata, metadata.back());
    fields.Bytes(instruction_field::kCustomCallTarget, kCollectiveCall);
    fields.Bytes(instruction_field::kBackendConfig, CollectiveAttributes(collective.op, outer));
    fields.Bool(instruction_field::kConstrainLayout, true);
    for (const std::string& shape : operand_shapes) fields.Bytes(instruction_field::kOperandShapes, shape);
    fields.Bool(instruction_field::kHasSideEffect, true);
    fields.Int64(instruction_field::kCustomCallApiVersion, kTypedFfi);
    if (last_ && !chain_) fields.Int64(instruction_field::kControlPredecessors, *last_);
    const std::string name = std::string(instruction.name) + ".served";
    WriteInstruction(call, name, "custom-call", TupleShape(results), operands, fields.bytes(), &out_);
    if (result.is_tuple()) {
      std::vector<int64_t> elements;
      for (size_t i = 0; i < data.size(); ++i) elements.push_back(Element(name, call, i, data[i], std::nullopt));
      WriteInstruction(instruction.id, std::string(instruction.name), "tuple", instruction.shape, elements, "", &out_);
    } else {
      Element(std::string(instruction.name), call, 0, data[0], instruction.id);
    }
    chain_ = Element(name, call, data.size(), results.back(), std::nullopt);
    last_ = call;
    return OkStatus();
  }

  // Adds an instruction that takes element `index` of `tuple`; its id.
  int64_t Element(const std::string& name, int64_t tuple, size_t index, std::string_view shape,
                  std::optional<int64_t> id) {
    const int64_t element = id ? *id : next_id_++;
    ProtoWriter fields;
    fields.Int64(instruction_field::kTupleIndex, static_cast<int64_t>(index));
    WriteInstruction(element, id ? name : name + "." + std::to_string(index), "get-tuple-element", shape, {tuple},
                     fields.bytes(), &out_);
    return element;
  }

  const Reductions& reductions_;
  const std::set<int64_t>& meeting_;
  const uint32_t shards_;
  ServedModule* const served_;
  ProtoWriter out_;
  std::map<int64_t, std::string_view> shapes_;  // by id
  int64_t next_id_ = 1;
  std::optional<int64_t> ticket_;
  std::optional<int64_t> chain_;  // the last collective's value for the next one
  std::optional<int64_t> last_;   // the last instruction that meets others
};

}  // namespace

Result<ServedModule> ServeCollectives(std::string_view module, uint32_t shards) {
  PW_ASSIGN_OR_RETURN(const HloModuleInfo info, ReadHloModule(module));
  if (info.parameters_are_tupled) {
    return Unimplemented("expected a module with one parameter per argument, got one whose only parameter is a tuple");
  }
  for (const std::string& opcode : info.cross_device_opcodes) {
    if (!IsCollective(opcode) && opcode != "partition-id" && opcode != "replica-id") {
      return Unimplemented("it needs " + opcode + " between devices of several hosts; use a slice within one host");
    }
  }
  PW_ASSIGN_OR_RETURN(const Reductions reductions, ReadReductions(module));
  PW_ASSIGN_OR_RETURN(const std::set<int64_t> meeting, ComputationsThatMeet(module));
  ServedModule served;
  const auto ticket = static_cast<int64_t>(info.parameters.size());
  PW_ASSIGN_OR_RETURN(const std::string edited,
                      EditComputations(module, [&](std::string_view computation, bool is_entry) -> Result<std::string> {
                        return Rewriter(reductions, meeting, shards, &served)
                            .Rewrite(computation, is_entry ? std::optional(ticket) : std::nullopt);
                      }));
  // Callers learn from the shardings that a partitioned module keeps how its results are laid out.
  ProtoWriter out;
  ProtoReader reader(edited);
  ProtoField field;
  bool has_shardings = false;
  while (reader.Next(&field)) {
    if (field.is(module_field::kHostProgramShape, WireType::kBytes)) {
      out.Bytes(module_field::kHostProgramShape, Rewriter::WithTicket(field.bytes));
      continue;
    }
    has_shardings = has_shardings || field.number == module_field::kParameterShardings;
    out.Raw(field.raw);
  }
  if (has_shardings) out.Bytes(module_field::kParameterShardings, "");  // of the ticket: replicated
  if (!reader.ok()) return MalformedModule("fields");
  served.module = std::move(out).Take();
  return served;
}

}  // namespace pathways::hlo
