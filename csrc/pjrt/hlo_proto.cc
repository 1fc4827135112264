#include "csrc/pjrt/hlo_proto.h"

namespace pathways::pjrt {

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

}  // namespace pathways::pjrt
