#include "csrc/hlo/xla_mistakes.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "csrc/hlo/collective_instruction.h"
#include "csrc/hlo/literal.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

constexpr uint32_t kComparisonDirection = 63;  // HloInstructionProto

struct IntegerType {
  DType dtype;
  int64_t largest;

  int64_t bits() const { return 8 * DTypeBytes(dtype); }
};

// Those that are as wide as the floating-point numbers of a type; nothing for other types.
std::optional<IntegerType> IntegersFor(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
      return IntegerType{DType::kS16, INT16_MAX};
    case DType::kF32:
      return IntegerType{DType::kS32, INT32_MAX};
    case DType::kF64:
      return IntegerType{DType::kS64, INT64_MAX};
    default:
      return std::nullopt;
  }
}

// Those of as many bits that have no sign; nothing for other types.
std::optional<DType> WithoutSign(DType dtype) {
  switch (dtype) {
    case DType::kS8:
      return DType::kU8;
    case DType::kS16:
      return DType::kU16;
    case DType::kS32:
      return DType::kU32;
    case DType::kS64:
      return DType::kU64;
    default:
      return std::nullopt;
  }
}

// The same shape, in the same layout, with elements of another type.
Result<std::string> WithElements(std::string_view shape, DType dtype) {
  ProtoWriter out;
  out.Int64(shape_field::kElementType, XlaPrimitiveFromDType(dtype));
  if (!CopyFieldsExcept(shape, {shape_field::kElementType}, &out)) return MalformedModule("a shape");
  return std::move(out).Take();
}

// By type of the integers and opcode: the computation of two scalars.
using Pairwise = std::map<std::pair<DType, std::string_view>, int64_t>;

std::string PairwiseComputation(int64_t id, DType dtype, std::string_view opcode) {
  constexpr uint32_t kResult = 2;  // ProgramShapeProto
  const std::string scalar = ArrayShape(dtype, {});
  ProtoWriter out, result;
  result.Bytes(kResult, scalar);
  std::string program_shape(result.bytes());
  out.Bytes(module_field::kName, "pathways." + std::string(opcode) + "." + std::to_string(id));
  for (int64_t i = 0; i < 2; ++i) {
    const std::string name = (i == 0 ? "nan.a." : "nan.b.") + std::to_string(id);
    ProtoWriter number;
    number.Int64(instruction_field::kParameterNumber, i);
    WriteInstruction(i + 1, name, "parameter", scalar, {}, number.bytes(), &out);
    program_shape = WithParameter(program_shape, scalar, name);
  }
  WriteInstruction(3, "nan." + std::to_string(id), opcode, scalar, {1, 2}, "", &out);
  out.Bytes(computation_field::kProgramShape, program_shape);
  out.Int64(computation_field::kId, id);
  out.Int64(computation_field::kRootId, 3);
  return std::move(out).Take();
}

// Writes one computation anew. A result has the id of what it takes the place of.
class MistakeRewriter {
 public:
  MistakeRewriter(MetBy met_by, const Reductions& reductions, Pairwise* pairwise, int64_t* next_computation,
                  bool* changed)
      : met_by_(met_by),
        reductions_(reductions),
        pairwise_(pairwise),
        next_computation_(next_computation),
        changed_(changed) {}

  Result<std::string> Rewrite(std::string_view computation) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    PW_ASSIGN_OR_RETURN(const int64_t own_id, ReadId(computation, computation_field::kId));
    prefix_ = "nan." + std::to_string(own_id) + ".";  // names are the module's
    const auto reduction = reductions_.find(own_id);
    reduces_ = reduction != reductions_.end() && reduction->second.has_value();
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      next_id_ = std::max(next_id_, instruction.id + 1);
      shapes_[instruction.id] = instruction.shape;
    }
    const auto edit = [this](std::string_view bytes) -> Result<bool> {
      PW_ASSIGN_OR_RETURN(const bool done, Edit(bytes));
      *changed_ = *changed_ || done;
      return done;
    };
    PW_RETURN_IF_ERROR(EditInstructions(computation, edit, &out_));
    return std::move(out_).Take();
  }

 private:
  Result<bool> Edit(std::string_view bytes) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
    if (instruction.opcode == "convert") return EditConvert(bytes, instruction);
    const bool multiplies = instruction.opcode == "multiply" || instruction.opcode == "dot";
    if (instruction.opcode == "abs" || (multiplies && !reduces_)) return EditIntegers(bytes, instruction);
    if (instruction.opcode == "reduce") {
      PW_ASSIGN_OR_RETURN(const bool edited, EditProduct(bytes, instruction));
      if (edited) return true;
    }
    const bool pads = instruction.opcode == "pad" || instruction.opcode == "reduce-window";
    if (pads && met_by_.partitioner) return EditPadded(bytes, instruction);
    if (instruction.opcode == "scatter" && met_by_.partitioner) return EditScatter(bytes, instruction);
    if (!met_by_.cpu_collectives) return false;
    const bool meets = instruction.opcode == "all-reduce" || instruction.opcode == "reduce-scatter";
    if (instruction.opcode != "reduce" && !meets) return false;
    PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
    const std::optional<IntegerType> integers = IntegersFor(DTypeFromXlaPrimitive(shape.element_type));
    PW_ASSIGN_OR_RETURN(const auto called, Integers(bytes, instruction_field::kCalledComputationIds));
    PW_ASSIGN_OR_RETURN(const auto operands, Integers(bytes, instruction_field::kOperandIds));
    if (!integers || called.size() != 1 || operands.size() != (meets ? 1 : 2)) return false;
    const auto reduction = reductions_.find(called[0]);
    if (reduction == reductions_.end() || !reduction->second) return false;
    const bool largest = *reduction->second == Reduction::kMax;
    if (!largest && *reduction->second != Reduction::kMin) return false;

    const int64_t nan = largest ? integers->largest : -integers->largest - 1;
    std::vector<int64_t> keys;
    for (const int64_t operand : operands) {
      const auto from = shapes_.find(operand);
      if (from == shapes_.end()) return MalformedModule("a reduction");
      PW_ASSIGN_OR_RETURN(const int64_t key, KeysOf(operand, from->second, *integers, nan));
      keys.push_back(key);
    }
    PW_ASSIGN_OR_RETURN(const std::string reduced, WithElements(instruction.shape, integers->dtype));
    PW_ASSIGN_OR_RETURN(const std::string fields,
                        FieldsOf(bytes, OfTwo(integers->dtype, largest ? "maximum" : "minimum")));
    const int64_t key = Write(instruction.opcode, reduced, keys, fields);
    PW_ASSIGN_OR_RETURN(const int64_t value, Turned(key, reduced, *integers));
    ProtoWriter result;
    if (instruction.sharding) result.Bytes(instruction_field::kSharding, *instruction.sharding);
    WriteInstruction(instruction.id, instruction.name, "bitcast-convert", instruction.shape, {value}, result.bytes(),
                     &out_);
    return true;
  }

  // What WriteInstruction is to be given of an instruction that is written again; `calling`: another computation than
  // it called.
  static Result<std::string> FieldsOf(std::string_view bytes, std::optional<int64_t> calling = std::nullopt) {
    using namespace instruction_field;
    ProtoWriter out;
    const bool copied =
        calling ? CopyFieldsExcept(bytes, {kName, kOpcode, kShape, kId, kOperandIds, kCalledComputationIds}, &out)
                : CopyFieldsExcept(bytes, {kName, kOpcode, kShape, kId, kOperandIds}, &out);
    if (!copied) return MalformedModule("an instruction");
    if (calling) out.Int64(kCalledComputationIds, *calling);
    return std::move(out).Take();
  }

  Result<bool> EditConvert(std::string_view bytes, const Instruction& instruction) {
    PW_ASSIGN_OR_RETURN(const auto operands, Integers(bytes, instruction_field::kOperandIds));
    const auto from = operands.size() == 1 ? shapes_.find(operands[0]) : shapes_.end();
    if (from == shapes_.end()) return MalformedModule("a convert");
    PW_ASSIGN_OR_RETURN(const Shape mask, ReadShape(from->second));
    PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
    const DType dtype = DTypeFromXlaPrimitive(shape.element_type);
    if (DTypeFromXlaPrimitive(mask.element_type) != DType::kPred || !IntegersFor(dtype)) return false;
    PW_ASSIGN_OR_RETURN(const std::string fields, FieldsOf(bytes));
    std::vector<int64_t> choice = operands;
    for (const int64_t value : {1, 0}) choice.push_back(Filled(value, dtype, instruction.shape));
    WriteInstruction(instruction.id, instruction.name, "select", instruction.shape, choice, fields, &out_);
    return true;
  }

  Result<bool> EditIntegers(std::string_view bytes, const Instruction& instruction) {
    PW_ASSIGN_OR_RETURN(std::vector<int64_t> operands, Integers(bytes, instruction_field::kOperandIds));
    PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
    const std::optional<DType> without_sign = WithoutSign(DTypeFromXlaPrimitive(shape.element_type));
    if (!without_sign) return false;
    PW_ASSIGN_OR_RETURN(const std::string fields, FieldsOf(bytes));
    if (instruction.opcode == "abs") {
      operands.push_back(Write("negate", instruction.shape, operands));
      WriteInstruction(instruction.id, instruction.name, "maximum", instruction.shape, operands, fields, &out_);
      return true;
    }
    return WriteWithoutSign(instruction, *without_sign, std::move(operands), fields);
  }

  // The product of integers along a dimension, which XLA writes as one of two factors where there are two.
  Result<bool> EditProduct(std::string_view bytes, const Instruction& instruction) {
    PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
    const std::optional<DType> without_sign = WithoutSign(DTypeFromXlaPrimitive(shape.element_type));
    PW_ASSIGN_OR_RETURN(const auto called, Integers(bytes, instruction_field::kCalledComputationIds));
    PW_ASSIGN_OR_RETURN(std::vector<int64_t> operands, Integers(bytes, instruction_field::kOperandIds));
    if (!without_sign || called.size() != 1 || operands.size() != 2) return false;
    const auto reduction = reductions_.find(called[0]);
    if (reduction == reductions_.end() || reduction->second != Reduction::kProduct) return false;
    PW_ASSIGN_OR_RETURN(const std::string fields, FieldsOf(bytes, OfTwo(*without_sign, "multiply")));
    return WriteWithoutSign(instruction, *without_sign, std::move(operands), fields);
  }

  // The same of integers without sign, whose products have the same bits. Not of operands of another width.
  Result<bool> WriteWithoutSign(const Instruction& instruction, DType dtype, std::vector<int64_t> operands,
                                std::string_view fields) {
    for (int64_t& operand : operands) {
      const auto from = shapes_.find(operand);
      if (from == shapes_.end()) return MalformedModule("a product");
      PW_ASSIGN_OR_RETURN(const Shape factor, ReadShape(from->second));
      if (WithoutSign(DTypeFromXlaPrimitive(factor.element_type)) != dtype) return false;
      PW_ASSIGN_OR_RETURN(const std::string natural, WithElements(from->second, dtype));
      operand = Write("bitcast-convert", natural, {operand});
    }
    PW_ASSIGN_OR_RETURN(const std::string natural, WithElements(instruction.shape, dtype));
    const int64_t product = Write(instruction.opcode, natural, operands, fields);
    ProtoWriter result;
    if (instruction.sharding) result.Bytes(instruction_field::kSharding, *instruction.sharding);
    WriteInstruction(instruction.id, instruction.name, "bitcast-convert", instruction.shape, {product}, result.bytes(),
                     &out_);
    return true;
  }

  Result<bool> EditPadded(std::string_view bytes, const Instruction& instruction) {
    PW_ASSIGN_OR_RETURN(std::vector<int64_t> operands, Integers(bytes, instruction_field::kOperandIds));
    const size_t inputs = operands.size() / 2;  // as many values to pad with follow
    bool second = false;
    for (size_t i = 0; i < inputs; ++i) second = !padded_.insert(operands[i]).second || second;
    if (!second) return false;
    for (size_t i = 0; i < inputs; ++i) {
      const auto from = shapes_.find(operands[i]);
      if (from == shapes_.end()) return MalformedModule("a padding");
      operands[i] = Write("opt-barrier", from->second, {operands[i]});
    }
    PW_ASSIGN_OR_RETURN(const std::string fields, FieldsOf(bytes));
    WriteInstruction(instruction.id, instruction.name, instruction.opcode, instruction.shape, operands, fields, &out_);
    return true;
  }

  Result<bool> EditScatter(std::string_view bytes, const Instruction& instruction) {
    PW_ASSIGN_OR_RETURN(std::vector<int64_t> operands, Integers(bytes, instruction_field::kOperandIds));
    int64_t& indices = operands[operands.size() / 2];  // between what is written and as many updates
    const auto from = shapes_.find(indices), into = shapes_.find(operands[0]);
    if (from == shapes_.end() || into == shapes_.end()) return MalformedModule("a scatter");
    PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(from->second));
    PW_ASSIGN_OR_RETURN(const Shape written, ReadShape(into->second));
    const DType dtype = DTypeFromXlaPrimitive(shape.element_type);
    const bool fit = std::ranges::all_of(written.dims, [](int64_t size) { return size <= INT32_MAX; });
    if (dtype != DType::kS64 || !fit) return false;
    // What is beyond the largest s32 is written nowhere, and stays so.
    const int64_t within = Write("clamp", from->second,
                                 {Filled(-1, dtype, from->second), indices, Filled(INT32_MAX, dtype, from->second)});
    PW_ASSIGN_OR_RETURN(const std::string narrow, WithElements(from->second, DType::kS32));
    indices = Write("convert", narrow, {within});
    PW_ASSIGN_OR_RETURN(const std::string fields, FieldsOf(bytes));
    WriteInstruction(instruction.id, instruction.name, instruction.opcode, instruction.shape, operands, fields, &out_);
    return true;
  }

  // The computation of two scalars.
  int64_t OfTwo(DType dtype, std::string_view opcode) {
    const auto [at, fresh] = pairwise_->try_emplace({dtype, opcode}, *next_computation_);
    if (fresh) ++*next_computation_;
    return at->second;
  }

  // Integers in the order of these numbers, and `nan` for those that are none.
  Result<int64_t> KeysOf(int64_t values, std::string_view shape, const IntegerType& integers, int64_t nan) {
    PW_ASSIGN_OR_RETURN(const std::string keys_shape, WithElements(shape, integers.dtype));
    PW_ASSIGN_OR_RETURN(const std::string flags_shape, WithElements(shape, DType::kPred));
    const int64_t bits = Write("bitcast-convert", keys_shape, {values});
    PW_ASSIGN_OR_RETURN(const int64_t keys, Turned(bits, keys_shape, integers));
    ProtoWriter unequal;
    unequal.Bytes(kComparisonDirection, "NE");
    const int64_t is_nan = Write("compare", flags_shape, {values, values}, unequal.bytes());
    return Write("select", keys_shape, {is_nan, Filled(nan, integers.dtype, keys_shape), keys});
  }

  // Of negative numbers all bits but the sign are turned around: from floating point's order to integers', and back.
  Result<int64_t> Turned(int64_t bits, const std::string& shape, const IntegerType& integers) {
    const int64_t sign =
        Write("shift-right-arithmetic", shape, {bits, Filled(integers.bits() - 1, integers.dtype, shape)});
    const int64_t mask = Write("and", shape, {sign, Filled(integers.largest, integers.dtype, shape)});
    return Write("xor", shape, {bits, mask});
  }

  int64_t Filled(int64_t value, DType dtype, std::string_view shape) {
    ProtoWriter fields;
    fields.Bytes(instruction_field::kLiteral, WholeLiteral(dtype, value));
    const int64_t scalar = Write("constant", ArrayShape(dtype, {}), {}, fields.bytes());
    return Write("broadcast", shape, {scalar});
  }

  int64_t Write(std::string_view opcode, std::string_view shape, const std::vector<int64_t>& operands,
                std::string_view fields = "") {
    WriteInstruction(next_id_, prefix_ + std::to_string(next_id_), opcode, shape, operands, fields, &out_);
    return next_id_++;
  }

  const MetBy met_by_;
  const Reductions& reductions_;
  Pairwise* const pairwise_;
  int64_t* const next_computation_;
  bool* const changed_;
  ProtoWriter out_;
  bool reduces_ = false;  // it is two scalars' sum, product and the like, which XLA knows by its one instruction
  std::map<int64_t, std::string_view> shapes_;
  std::set<int64_t> padded_;  // operands of what pads, so far
  std::string prefix_;
  int64_t next_id_ = 1;
};

}  // namespace

Result<std::string> AvoidXlaMistakes(std::string_view module, MetBy met_by) {
  PW_ASSIGN_OR_RETURN(const Reductions reductions, ReadReductions(module));
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  int64_t next_computation = 1;
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(computation, computation_field::kId));
    next_computation = std::max(next_computation, id + 1);
  }
  Pairwise pairwise;
  bool changed = false;
  PW_ASSIGN_OR_RETURN(
      const std::string edited, EditComputations(module, [&](std::string_view computation, bool) {
        return MistakeRewriter(met_by, reductions, &pairwise, &next_computation, &changed).Rewrite(computation);
      }));
  if (!changed) return std::string(module);
  ProtoWriter out;  // what is called stands before its callers
  for (const auto& [what, id] : pairwise) {
    out.Bytes(module_field::kComputations, PairwiseComputation(id, what.first, what.second));
  }
  out.Raw(edited);
  return std::move(out).Take();
}

}  // namespace pathways::hlo
