#include "csrc/hlo/summary.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/base/tensor_type.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

constexpr size_t kShownElements = 8;

template <typename T>
std::string NumberText(T value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

template <typename T>
T FromBytes(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float Bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float F16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  float value = exponent == 0    ? static_cast<float>(fraction) / (1 << 24)
                : exponent == 31 ? (fraction == 0 ? __builtin_inff() : __builtin_nanf(""))
                                 : static_cast<float>(fraction + 1024) / 1024.0f;
  for (int i = 15; exponent > 0 && exponent < 31 && i < exponent; ++i) value *= 2;
  for (int i = exponent; exponent > 0 && i < 15; ++i) value /= 2;
  return (bits & 0x8000) != 0 ? -value : value;
}

std::string Digest(std::string_view bytes) { return "#" + NumberText(std::hash<std::string_view>{}(bytes)); }

template <typename T>
void EachOf(std::string_view bytes, std::vector<std::string>* out, const std::function<std::string(T)>& text) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size() && out->size() <= kShownElements; at += sizeof(T)) {
    out->push_back(text(FromBytes<T>(bytes.data() + at)));
  }
}

// The elements that a LiteralProto's field holds; one more than is shown tells that there are more.
std::vector<std::string> Elements(const ProtoField& field) {
  std::vector<std::string> out;
  const std::string_view bytes = field.bytes;
  switch (field.number) {
    case 2:  // preds
      ForEachInt64(field, [&out](int64_t value) { out.push_back(value != 0 ? "true" : "false"); });
      break;
    case 4:  // s32s
    case 5:  // s64s
      ForEachInt64(field, [&out](int64_t value) { out.push_back(NumberText(value)); });
      break;
    case 6:  // u32s
    case 7:  // u64s
      ForEachInt64(field, [&out](int64_t value) { out.push_back(NumberText(static_cast<uint64_t>(value))); });
      break;
    case 3:  // u8s
      EachOf<uint8_t>(bytes, &out, [](uint8_t value) { return NumberText(static_cast<int>(value)); });
      break;
    case 8:  // f32s
      EachOf<float>(bytes, &out, [](float value) { return NumberText(value); });
      break;
    case 9:  // f64s
      EachOf<double>(bytes, &out, [](double value) { return NumberText(value); });
      break;
    case 11:  // f16s
      EachOf<uint16_t>(bytes, &out, [](uint16_t bits) { return NumberText(F16(bits)); });
      break;
    case 13:  // bf16s
      EachOf<uint16_t>(bytes, &out, [](uint16_t bits) { return NumberText(Bf16(bits)); });
      break;
    case 15:  // s8s
      EachOf<int8_t>(bytes, &out, [](int8_t value) { return NumberText(static_cast<int>(value)); });
      break;
    default:
      break;
  }
  return out;
}

std::string LiteralText(std::string_view literal) {
  std::string text;
  ProtoReader reader(literal);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.number == 1) continue;  // its shape
    const std::vector<std::string> elements = Elements(field);
    if (elements.empty() || elements.size() > kShownElements) return Digest(literal);
    for (const std::string& element : elements) text += (text.empty() ? "" : ", ") + element;
  }
  return text.empty() ? Digest(literal) : text;
}

Result<std::string> ShapeText(std::string_view bytes) {
  PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(bytes));
  if (!shape.is_tuple()) {
    TensorType type;
    type.dtype = DTypeFromXlaPrimitive(shape.element_type);
    type.dims = shape.dims;
    return type.ToString();
  }
  std::string text = "(";
  for (const std::string_view element : shape.elements) {
    PW_ASSIGN_OR_RETURN(const std::string one, ShapeText(element));
    text += (text.size() > 1 ? ", " : "") + one;
  }
  return text + ")";
}

std::string SliceText(const std::vector<std::string_view>& dimensions) {
  std::string text;
  for (const std::string_view dimension : dimensions) {
    int64_t start = 0, limit = 0, stride = 0;
    ProtoReader reader(dimension);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(1, WireType::kVarint)) start = field.as_int64();
      if (field.is(2, WireType::kVarint)) limit = field.as_int64();
      if (field.is(3, WireType::kVarint)) stride = field.as_int64();
    }
    text += (text.empty() ? "" : ", ") + NumberText(start) + ":" + NumberText(limit);
    if (stride > 1) text += ":" + NumberText(stride);
  }
  return text;
}

std::string SourceText(std::string_view metadata) {
  std::string file;
  int64_t line = 0;
  ProtoReader reader(metadata);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(3, WireType::kBytes)) file = field.bytes;  // OpMetadata.source_file
    if (field.is(4, WireType::kVarint)) line = field.as_int64();
  }
  return file.empty() ? "" : file + ":" + NumberText(line);
}

Result<HloInstructionSummary> SummarizeInstruction(std::string_view bytes) {
  HloInstructionSummary out;
  std::string_view literal;
  std::vector<std::string_view> slices;
  std::string attributes;  // whatever else makes it what it is, but for who it is and what it is connected to
  int64_t parameter_number = 0;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    switch (field.number) {
      case instruction_field::kOpcode:
        out.opcode = field.bytes;
        break;
      case instruction_field::kShape: {
        PW_ASSIGN_OR_RETURN(out.shape, ShapeText(field.bytes));
        break;
      }
      case instruction_field::kLiteral:
        literal = field.bytes;
        break;
      case instruction_field::kMetadata:
        out.source = SourceText(field.bytes);
        break;
      case instruction_field::kParameterNumber:
        parameter_number = field.as_int64();
        break;
      case instruction_field::kSliceDimensions:
        slices.push_back(field.bytes);
        break;
      case instruction_field::kName:
      case instruction_field::kId:
      case instruction_field::kOperandIds:
      case instruction_field::kCalledComputationIds:
      case instruction_field::kControlPredecessors:
        break;
      default:
        attributes.append(field.raw);
    }
  }
  if (!reader.ok()) return MalformedModule("an instruction");
  if (out.opcode == "constant") {
    out.detail = LiteralText(literal);
  } else if (out.opcode == "parameter") {
    out.detail = NumberText(parameter_number);
  } else if (!slices.empty()) {
    out.detail = SliceText(slices);
  } else if (!attributes.empty()) {
    out.detail = Digest(attributes);
  }
  return out;
}

}  // namespace

Result<HloSummary> SummarizeHlo(std::string_view module) {
  PW_ASSIGN_OR_RETURN(const HloModuleInfo info, ReadHloModule(module));
  HloSummary out;
  out.name = info.name;
  for (const TensorType& type : info.parameters) out.parameters.push_back(type.ToString());
  for (const TensorType& type : info.results) out.results.push_back(type.ToString());
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view instruction : instructions) {
      PW_ASSIGN_OR_RETURN(HloInstructionSummary summary, SummarizeInstruction(instruction));
      out.instructions.push_back(std::move(summary));
    }
  }
  return out;
}

Result<Meeting> FirstMeeting(std::string_view module, std::span<const int64_t> places) {
  PW_ASSIGN_OR_RETURN(const int64_t entry_id, ReadId(module, module_field::kEntryId));
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  std::vector<std::string_view> instructions;
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(computation, computation_field::kId));
    if (id != entry_id) continue;
    PW_ASSIGN_OR_RETURN(instructions, SubMessages(computation, computation_field::kInstructions));
  }
  struct Node {
    Instruction instruction;
    std::vector<int64_t> operands;
    int64_t place = -1;  // where it comes from; -1: from constants
  };
  for (const bool with_numbers : {false, true}) {
    std::map<int64_t, Node> nodes;
    const auto type_of = [&](const Node* node) -> Result<std::string> {
      while (node->operands.size() == 1 &&
             (node->instruction.opcode == "broadcast" || node->instruction.opcode == "reshape" ||
              node->instruction.opcode == "convert")) {
        const auto from = nodes.find(node->operands[0]);
        if (from == nodes.end()) break;
        node = &from->second;
      }
      return ShapeText(node->instruction.shape);
    };
    for (const std::string_view bytes : instructions) {  // operands come before their users
      Node node;
      PW_ASSIGN_OR_RETURN(node.instruction, ReadInstruction(bytes));
      PW_ASSIGN_OR_RETURN(node.operands, Integers(bytes, instruction_field::kOperandIds));
      if (node.instruction.opcode == "parameter") {
        const int64_t number = node.instruction.parameter_number;
        PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(node.instruction.shape));
        if (number >= 0 && static_cast<size_t>(number) < places.size() && (with_numbers || !shape.dims.empty())) {
          node.place = places[static_cast<size_t>(number)];
        }
      }
      const Node* first = nullptr;
      for (const int64_t operand : node.operands) {
        const auto found = nodes.find(operand);
        if (found == nodes.end() || found->second.place < 0) continue;
        if (first == nullptr) {
          first = &found->second;
          node.place = first->place;
        } else if (first->place != found->second.place && node.instruction.opcode != "tuple") {
          Meeting out;
          out.opcode = std::string(node.instruction.opcode);
          out.places[0] = first->place;
          out.places[1] = found->second.place;
          PW_ASSIGN_OR_RETURN(out.types[0], type_of(first));
          PW_ASSIGN_OR_RETURN(out.types[1], type_of(&found->second));
          PW_ASSIGN_OR_RETURN(const auto metadata, SubMessages(bytes, instruction_field::kMetadata));
          if (!metadata.empty()) out.source = SourceText(metadata.back());
          return out;
        }
      }
      nodes.emplace(node.instruction.id, std::move(node));
    }
  }
  return Meeting();
}

}  // namespace pathways::hlo
