#include "csrc/hlo/proto.h"

namespace pathways::hlo {

Status MalformedModule(std::string_view what) {
  return InvalidArgument("expected " + std::string(what) + " in a serialized HloModuleProto, got malformed bytes");
}

Result<Instruction> ReadInstruction(std::string_view bytes) {
  Instruction out;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(instruction_field::kName, WireType::kBytes)) out.name = field.bytes;
    if (field.is(instruction_field::kOpcode, WireType::kBytes)) out.opcode = field.bytes;
    if (field.is(instruction_field::kShape, WireType::kBytes)) out.shape = field.bytes;
    if (field.is(instruction_field::kSharding, WireType::kBytes)) out.sharding = field.bytes;
    if (field.is(instruction_field::kId, WireType::kVarint)) out.id = field.as_int64();
    if (field.is(instruction_field::kParameterNumber, WireType::kVarint)) out.parameter_number = field.as_int64();
  }
  if (!reader.ok()) return MalformedModule("an instruction");
  return out;
}

Result<Shape> ReadShape(std::string_view bytes) {
  Shape out;
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    if (field.is(shape_field::kElementType, WireType::kVarint)) out.element_type = field.as_int64();
    if (field.is(shape_field::kTupleShapes, WireType::kBytes)) out.elements.push_back(field.bytes);
    if (field.number == shape_field::kDimensions) {
      ok = ok && ForEachInt64(field, [&out](int64_t dim) { out.dims.push_back(dim); });
    }
    if (field.number == shape_field::kIsDynamicDimension) {
      ok = ok && ForEachInt64(field, [&out](int64_t dynamic) { out.dynamic = out.dynamic || dynamic != 0; });
    }
  }
  if (!reader.ok() || !ok) return MalformedModule("a shape");
  return out;
}

Result<std::vector<std::string_view>> SubMessages(std::string_view bytes, uint32_t number) {
  std::vector<std::string_view> out;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(number, WireType::kBytes)) out.push_back(field.bytes);
  }
  if (!reader.ok()) return MalformedModule("a message");
  return out;
}

Result<int64_t> ReadId(std::string_view bytes, uint32_t number) {
  int64_t id = 0;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(number, WireType::kVarint)) id = field.as_int64();
  }
  if (!reader.ok()) return MalformedModule("a message");
  return id;
}

Result<std::vector<int64_t>> Integers(std::string_view bytes, uint32_t number) {
  std::vector<int64_t> out;
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    if (field.number == number) ok = ok && ForEachInt64(field, [&out](int64_t value) { out.push_back(value); });
  }
  if (!reader.ok() || !ok) return MalformedModule("a message");
  return out;
}

std::string ArrayShape(DType dtype, const std::vector<int64_t>& dims) {
  ProtoWriter out, layout;
  out.Int64(shape_field::kElementType, XlaPrimitiveFromDType(dtype));
  for (const int64_t dim : dims) out.Int64(shape_field::kDimensions, dim);
  for (size_t i = dims.size(); i-- > 0;) layout.Int64(1, static_cast<int64_t>(i));  // LayoutProto.minor_to_major
  out.Bytes(shape_field::kLayout, layout.bytes());
  for (size_t i = 0; i < dims.size(); ++i) out.Int64(shape_field::kIsDynamicDimension, 0);
  return std::move(out).Take();
}

std::string TupleShape(const std::vector<std::string>& elements) {
  ProtoWriter out;
  out.Int64(shape_field::kElementType, shape_field::kTuple);
  for (const std::string& element : elements) out.Bytes(shape_field::kTupleShapes, element);
  return std::move(out).Take();
}

std::string WithParameter(std::string_view program_shape, std::string_view shape, std::string_view name) {
  ProtoWriter out;
  out.Raw(program_shape);
  out.Bytes(program_shape_field::kParameters, shape);
  out.Bytes(program_shape_field::kParameterNames, name);
  return std::move(out).Take();
}

Result<std::string_view> EntryComputation(std::string_view module) {
  PW_ASSIGN_OR_RETURN(const int64_t entry_id, ReadId(module, module_field::kEntryId));
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(computation, computation_field::kId));
    if (id == entry_id) return computation;
  }
  return MalformedModule("the entry computation");
}

void WriteInstruction(int64_t id, std::string_view name, std::string_view opcode, std::string_view shape,
                      const std::vector<int64_t>& operands, std::string_view fields, ProtoWriter* computation) {
  ProtoWriter out;
  out.Bytes(instruction_field::kName, name);
  out.Bytes(instruction_field::kOpcode, opcode);
  out.Bytes(instruction_field::kShape, shape);
  out.Int64(instruction_field::kId, id);
  for (const int64_t operand : operands) out.Int64(instruction_field::kOperandIds, operand);
  out.Raw(fields);
  computation->Bytes(computation_field::kInstructions, out.bytes());
}

Status EditInstructions(std::string_view computation, const InstructionEdit& edit, ProtoWriter* out) {
  ProtoReader reader(computation);
  ProtoField field;
  while (reader.Next(&field)) {
    bool done = false;
    if (field.is(computation_field::kInstructions, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(done, edit(field.bytes));
    }
    if (!done) out->Raw(field.raw);
  }
  return reader.ok() ? OkStatus() : MalformedModule("a computation");
}

Result<std::string> EditComputations(std::string_view module, const ComputationEdit& edit) {
  PW_ASSIGN_OR_RETURN(const int64_t entry_id, ReadId(module, module_field::kEntryId));
  ProtoWriter out;
  ProtoReader reader(module);
  ProtoField field;
  while (reader.Next(&field)) {
    if (!field.is(module_field::kComputations, WireType::kBytes)) {
      out.Raw(field.raw);
      continue;
    }
    PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(field.bytes, computation_field::kId));
    PW_ASSIGN_OR_RETURN(const std::string edited, edit(field.bytes, id == entry_id));
    out.Bytes(module_field::kComputations, edited);
  }
  if (!reader.ok()) return MalformedModule("fields");
  return std::move(out).Take();
}

}  // namespace pathways::hlo
