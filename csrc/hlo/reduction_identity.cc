#include "csrc/hlo/reduction_identity.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "csrc/hlo/literal.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

bool IsSigned(DType dtype) {
  return dtype == DType::kS8 || dtype == DType::kS16 || dtype == DType::kS32 || dtype == DType::kS64;
}

bool IsUnsigned(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kU32 || dtype == DType::kU64;
}

struct RealBits {
  uint64_t one, infinity, sign;
};

std::optional<RealBits> BitsOfReal(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return RealBits{0x3c00, 0x7c00, 0x8000};
    case DType::kBF16:
      return RealBits{0x3f80, 0x7f80, 0x8000};
    case DType::kF32:
      return RealBits{0x3f800000, 0x7f800000, 0x80000000};
    case DType::kF64:
      return RealBits{0x3ff0000000000000, 0x7ff0000000000000, 0x8000000000000000};
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> IdentityOfOperation(std::string_view opcode, DType dtype) {
  if (const std::optional<RealBits> real = BitsOfReal(dtype)) {
    if (opcode == "add") return real->sign;  // -0.0, which even keeps a zero's sign
    if (opcode == "multiply") return real->one;
    if (opcode == "maximum") return real->infinity | real->sign;
    if (opcode == "minimum") return real->infinity;
    return std::nullopt;
  }
  if (dtype == DType::kPred) {
    if (opcode == "and" || opcode == "minimum" || opcode == "multiply") return 1;
    if (opcode == "or" || opcode == "xor" || opcode == "maximum") return 0;
    return std::nullopt;
  }
  if (!IsSigned(dtype) && !IsUnsigned(dtype)) return std::nullopt;
  const int64_t bits = 8 * DTypeBytes(dtype);
  const uint64_t ones = ~uint64_t{0} >> (64 - bits), top = uint64_t{1} << (bits - 1);
  if (opcode == "add" || opcode == "or" || opcode == "xor") return 0;
  if (opcode == "multiply") return 1;
  if (opcode == "and") return ones;
  if (opcode == "maximum") return IsSigned(dtype) ? top : 0;
  if (opcode == "minimum") return IsSigned(dtype) ? ones ^ top : ones;
  return std::nullopt;
}

// Computes with truth values: of a computation that asks of its parameters only whether they are zero, and gives the
// one or the zero of a type.
class TruthTable {
 public:
  // Nothing for other computations.
  static Result<std::optional<TruthTable>> Read(std::string_view computation, DType dtype) {
    TruthTable table;
    for (const bool first : {false, true}) {
      for (const bool second : {false, true}) {
        PW_ASSIGN_OR_RETURN(const std::optional<bool> result, Evaluate(computation, dtype, {first, second}));
        if (!result) return std::optional<TruthTable>();
        table.results_[first][second] = *result;
      }
    }
    return std::optional(table);
  }

  bool operator()(bool first, bool second) const { return results_[first][second]; }

 private:
  static Result<std::optional<bool>> Evaluate(std::string_view computation, DType dtype, std::array<bool, 2> given) {
    constexpr uint32_t kDirection = 63;  // HloInstructionProto.comparison_direction
    PW_ASSIGN_OR_RETURN(const int64_t root, ReadId(computation, computation_field::kRootId));
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    std::map<int64_t, bool> values, zeros, parameters;  // `zeros`: the constants that are
    std::map<int64_t, bool> numbers;                    // what is no truth value: whether it is not zero
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
      PW_ASSIGN_OR_RETURN(const auto operands, Integers(bytes, instruction_field::kOperandIds));
      const DType type = DTypeFromXlaPrimitive(shape.element_type);
      const std::string_view opcode = instruction.opcode;
      const int64_t id = instruction.id;
      std::map<int64_t, bool>& made = type == DType::kPred ? values : numbers;
      const auto all_in = [&operands](const std::map<int64_t, bool>& map, size_t count) {
        return operands.size() == count &&
               std::all_of(operands.begin(), operands.end(), [&map](int64_t each) { return map.contains(each); });
      };
      if (!shape.dims.empty() || shape.is_tuple()) return std::optional<bool>();
      if (opcode == "parameter" && type == dtype && (instruction.parameter_number & ~int64_t{1}) == 0) {
        made[id] = given[static_cast<size_t>(instruction.parameter_number)];
        parameters[id] = true;
      } else if (opcode == "constant") {
        PW_ASSIGN_OR_RETURN(const auto literals, SubMessages(bytes, instruction_field::kLiteral));
        const auto bits = literals.size() == 1 ? ScalarOf(literals[0], type) : std::nullopt;
        if (!bits || *bits > 1 || BitsOfReal(type)) return std::optional<bool>();
        made[id] = *bits != 0;
        if (*bits == 0) zeros[id] = true;
      } else if (opcode == "compare" && operands.size() == 2 && (all_in(values, 2) || all_in(numbers, 2)) &&
                 (zeros.contains(operands[0]) || zeros.contains(operands[1]))) {
        PW_ASSIGN_OR_RETURN(const auto directions, SubMessages(bytes, kDirection));
        const std::map<int64_t, bool>& from = values.contains(operands[0]) ? values : numbers;
        const bool differ = from.at(operands[0]) != from.at(operands[1]);
        if (directions.size() != 1 || (directions[0] != "NE" && directions[0] != "EQ")) return std::optional<bool>();
        values[id] = differ == (directions[0] == "NE");
      } else if ((opcode == "and" || opcode == "or") && type == DType::kPred && all_in(values, 2)) {
        const bool a = values[operands[0]], b = values[operands[1]];
        values[id] = opcode == "and" ? a && b : a || b;
      } else if (opcode == "select" && operands.size() == 3 && values.contains(operands[0]) &&
                 made.contains(operands[1]) && made.contains(operands[2]) &&
                 (type == DType::kPred || !(parameters.contains(operands[1]) || parameters.contains(operands[2])))) {
        made[id] = made[values[operands[0]] ? operands[1] : operands[2]];
      } else {
        return std::optional<bool>();
      }
    }
    const std::map<int64_t, bool>& results = dtype == DType::kPred ? values : numbers;
    const auto found = results.find(root);
    return found == results.end() ? std::nullopt : std::optional(found->second);
  }

  bool results_[2][2] = {};
};

}  // namespace

Result<std::optional<uint64_t>> IdentityOf(std::string_view computation, DType dtype) {
  PW_ASSIGN_OR_RETURN(const int64_t root, ReadId(computation, computation_field::kRootId));
  PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
  std::map<int64_t, int64_t> parameters;  // numbers by id
  std::string_view opcode;
  std::vector<int64_t> operands;
  for (const std::string_view bytes : instructions) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
    PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
    if (!shape.dims.empty()) return std::optional<uint64_t>();
    if (instruction.opcode == "parameter") parameters[instruction.id] = instruction.parameter_number;
    if (instruction.id != root || DTypeFromXlaPrimitive(shape.element_type) != dtype) continue;
    opcode = instruction.opcode;
    PW_ASSIGN_OR_RETURN(operands, Integers(bytes, instruction_field::kOperandIds));
  }
  if (instructions.size() == 3 && operands.size() == 2 && parameters.size() == 2 && parameters.contains(operands[0]) &&
      parameters.contains(operands[1]) && operands[0] != operands[1]) {
    return IdentityOfOperation(opcode, dtype);
  }
  // PyTorch's all() and any(). What they give is one or zero, and adding the identity does not change that.
  PW_ASSIGN_OR_RETURN(const auto table, TruthTable::Read(computation, dtype));
  for (const bool each : {false, true}) {
    const auto keeps = [&](bool other) { return (*table)(each, other) == other && (*table)(other, each) == other; };
    if (table && keeps(false) && keeps(true)) return std::optional<uint64_t>(each ? 1 : 0);
  }
  return std::optional<uint64_t>();
}

Result<bool> Selects(std::string_view computation, size_t count) {
  PW_ASSIGN_OR_RETURN(const int64_t root, ReadId(computation, computation_field::kRootId));
  PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
  std::map<int64_t, size_t> place_of;  // of what is one of the two parameters in a place, by id
  for (const std::string_view bytes : instructions) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
    PW_ASSIGN_OR_RETURN(const auto operands, Integers(bytes, instruction_field::kOperandIds));
    const auto place = [&](size_t operand) -> std::optional<size_t> {
      if (operand >= operands.size()) return std::nullopt;
      const auto found = place_of.find(operands[operand]);
      return found == place_of.end() ? std::nullopt : std::optional(found->second);
    };
    const auto either = [&](size_t a, size_t b) {
      if (place(a) && place(a) == place(b)) place_of[instruction.id] = *place(a);
    };
    const std::string_view opcode = instruction.opcode;
    if (opcode == "parameter") {
      place_of[instruction.id] = static_cast<size_t>(instruction.parameter_number) % count;
    } else if (opcode == "select") {
      either(1, 2);
    } else if (opcode == "maximum" || opcode == "minimum") {
      either(0, 1);
    } else if (opcode == "copy") {
      either(0, 0);
    } else if (opcode == "tuple" && instruction.id == root) {
      if (operands.size() != count) return false;
      for (size_t i = 0; i < count; ++i) {
        if (place(i) != i) return false;
      }
      return true;
    }
  }
  return count == 1 && place_of.contains(root);
}

}  // namespace pathways::hlo
