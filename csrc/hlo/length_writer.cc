#include "csrc/hlo/length_writer.h"

#include "csrc/hlo/literal.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {

int64_t LengthWriter::Emit(std::string_view opcode, DType dtype, const std::vector<int64_t>& dims,
                           const std::vector<int64_t>& operands, std::string_view fields) {
  const int64_t id = next_id_++;
  WriteInstruction(id, "length." + std::to_string(id), opcode, ArrayShape(dtype, dims), operands, fields, &out_);
  return id;
}

int64_t LengthWriter::Constant(DType dtype, uint64_t bits) {
  const auto [found, is_new] = constants_.try_emplace({dtype, bits}, next_id_);
  if (is_new) {
    ProtoWriter fields;
    fields.Bytes(instruction_field::kLiteral, LiteralOf(dtype, bits).value_or(std::string()));
    Emit("constant", dtype, {}, {}, fields.bytes());
  }
  return found->second;
}

int64_t LengthWriter::Broadcast(DType dtype, const std::vector<int64_t>& dims, int64_t scalar) {
  return Emit("broadcast", dtype, dims, {scalar});
}

int64_t LengthWriter::Compare(std::string_view direction, const std::vector<int64_t>& dims, int64_t a, int64_t b) {
  constexpr uint32_t kDirection = 63;  // HloInstructionProto.comparison_direction
  ProtoWriter fields;
  fields.Bytes(kDirection, direction);
  return Emit("compare", DType::kPred, dims, {a, b}, fields.bytes());
}

std::string LengthWriter::Dimension(size_t dimension) {
  ProtoWriter fields;
  fields.Int64(instruction_field::kDimensions, static_cast<int64_t>(dimension));
  return std::move(fields).Take();
}

int64_t LengthWriter::Iota(const std::vector<int64_t>& dims, size_t dimension) {
  return Emit("iota", DType::kS32, dims, {}, Dimension(dimension));
}

int64_t LengthWriter::Length() {
  if (!length_) {
    ProtoWriter fields;
    fields.Int64(instruction_field::kParameterNumber, parameter_);
    length_ = Emit("parameter", DType::kS32, {}, {}, fields.bytes());
  }
  return *length_;
}

int64_t LengthWriter::Size(DType dtype, int64_t offset) {
  if (const auto found = sizes_.find({dtype, offset}); found != sizes_.end()) return found->second;
  int64_t id = Length();
  if (dtype != DType::kS32) id = offset == 0 ? Emit("convert", dtype, {}, {id}) : Size(dtype, 0);
  if (offset != 0) id = Emit("add", dtype, {}, {id, Constant(dtype, static_cast<uint64_t>(offset))});
  sizes_[{dtype, offset}] = id;
  return id;
}

int64_t LengthWriter::Masked(const GrowingShape& shape, int64_t value, size_t dimension, int64_t fill) {
  const int64_t size = Broadcast(DType::kS32, shape.dims, Size(DType::kS32, shape.offsets[dimension].value_or(0)));
  const int64_t inside = Compare("LT", shape.dims, Iota(shape.dims, dimension), size);
  return Emit("select", shape.dtype, shape.dims, {inside, value, Broadcast(shape.dtype, shape.dims, fill)});
}

Status LengthWriter::Write(std::string_view instruction, const GrowingShape& shape,
                           const std::optional<std::vector<int64_t>>& operands, uint32_t dropped,
                           std::string_view fields) {
  ProtoWriter out;
  ProtoReader reader(instruction);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(instruction_field::kShape, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(const std::string bounded, AtBound(field.bytes, shape));
      out.Bytes(field.number, bounded);
    } else if (field.number != dropped && !(operands && field.number == instruction_field::kOperandIds)) {
      out.Raw(field.raw);
    }
  }
  if (!reader.ok()) return MalformedModule("an instruction");
  if (operands) {
    for (const int64_t operand : *operands) out.Int64(instruction_field::kOperandIds, operand);
  }
  out.Raw(fields);
  out_.Bytes(computation_field::kInstructions, out.bytes());
  return OkStatus();
}

}  // namespace pathways::hlo
