#include "csrc/hlo/module_costs.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

constexpr uint32_t kLeftContracting = 1;  // DotDimensionNumbers
constexpr uint32_t kKernelOutput = 4;     // ConvolutionDimensionNumbers

constexpr std::array<std::string_view, 7> kMovingOpcodes = {
    "all-gather",         "all-reduce",        "all-to-all",    "collective-broadcast",
    "collective-permute", "ragged-all-to-all", "reduce-scatter"};

int64_t ElementsOf(const Shape& shape) {
  return std::accumulate(shape.dims.begin(), shape.dims.end(), int64_t{1}, std::multiplies<>());
}

// Of a tuple the sum, or for an asynchronous collective, whose result repeats its operand, the largest.
Result<int64_t> BytesOf(std::string_view bytes, bool largest) {
  PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(bytes));
  if (!shape.is_tuple()) return ElementsOf(shape) * DTypeBytes(DTypeFromXlaPrimitive(shape.element_type));
  int64_t sum = 0, most = 0;
  for (const std::string_view element : shape.elements) {
    PW_ASSIGN_OR_RETURN(const int64_t size, BytesOf(element, largest));
    sum += size;
    most = std::max(most, size);
  }
  return largest ? most : sum;
}

using Shapes = std::map<int64_t, std::string_view>;
using Visit = std::function<Status(std::string_view bytes, const Instruction& instruction, const Shapes& shapes)>;

// `shapes`: of the instructions before it in its computation, by id; operands come before their users.
Status ForEachInstruction(std::string_view module, const Visit& visit) {
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    Shapes shapes;
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      PW_RETURN_IF_ERROR(visit(bytes, instruction, shapes));
      shapes.emplace(instruction.id, instruction.shape);
    }
  }
  return OkStatus();
}

Result<Shape> OperandShape(std::string_view bytes, size_t number, const Shapes& shapes) {
  PW_ASSIGN_OR_RETURN(const auto operands, Integers(bytes, instruction_field::kOperandIds));
  const auto found = number < operands.size() ? shapes.find(operands[number]) : shapes.end();
  if (found == shapes.end()) return MalformedModule("an instruction's operands");
  return ReadShape(found->second);
}

// How many products are added up for each element of the result.
Result<int64_t> ProductsPerElement(std::string_view bytes, std::string_view opcode, const Shapes& shapes) {
  const bool dot = opcode == "dot";
  PW_ASSIGN_OR_RETURN(const Shape operand, OperandShape(bytes, dot ? 0 : 1, shapes));
  PW_ASSIGN_OR_RETURN(const auto numbers, SubMessages(bytes, dot ? instruction_field::kDotDimensions
                                                                 : instruction_field::kConvolutionDimensions));
  const std::string_view dimensions = numbers.empty() ? std::string_view() : numbers.back();
  const auto size = [&operand](int64_t dim) -> Result<int64_t> {
    if (dim < 0 || dim >= static_cast<int64_t>(operand.dims.size())) return MalformedModule("a product's dimensions");
    return operand.dims[static_cast<size_t>(dim)];
  };
  if (dot) {
    PW_ASSIGN_OR_RETURN(const auto contracting, Integers(dimensions, kLeftContracting));
    int64_t out = 1;
    for (const int64_t dim : contracting) {
      PW_ASSIGN_OR_RETURN(const int64_t extent, size(dim));
      out *= extent;
    }
    return out;
  }
  PW_ASSIGN_OR_RETURN(const int64_t output, ReadId(dimensions, kKernelOutput));
  PW_ASSIGN_OR_RETURN(const int64_t outputs, size(output));
  return outputs == 0 ? 0 : ElementsOf(operand) / outputs;
}

}  // namespace

Result<std::vector<CollectiveUse>> ListCollectives(std::string_view module, uint32_t devices) {
  std::vector<CollectiveUse> out;
  const auto visit = [&](std::string_view bytes, const Instruction& instruction, const Shapes& shapes) -> Status {
    constexpr std::string_view kStart = "-start";
    std::string_view opcode = instruction.opcode;
    const bool asynchronous = opcode.ends_with(kStart);
    if (asynchronous) opcode.remove_suffix(kStart.size());
    if (std::find(kMovingOpcodes.begin(), kMovingOpcodes.end(), opcode) == kMovingOpcodes.end()) return OkStatus();
    CollectiveUse use;
    use.opcode = opcode;
    PW_ASSIGN_OR_RETURN(CollectiveFields fields, ReadCollectiveFields(bytes, devices));
    use.groups = std::move(fields.groups);
    for (const auto& [from, to] : fields.pairs) use.groups.push_back({from, to});
    for (const int64_t operand : fields.operands) {
      const auto found = shapes.find(operand);
      if (found == shapes.end()) continue;
      PW_ASSIGN_OR_RETURN(const int64_t size, BytesOf(found->second, false));
      use.bytes += size;
    }
    PW_ASSIGN_OR_RETURN(const int64_t result, BytesOf(instruction.shape, asynchronous));
    use.bytes = std::max(use.bytes, result);
    out.push_back(std::move(use));
    return OkStatus();
  };
  PW_RETURN_IF_ERROR(ForEachInstruction(module, visit));
  return out;
}

Result<std::map<DType, int64_t>> CountFlops(std::string_view module) {
  std::map<DType, int64_t> out;
  const auto visit = [&out](std::string_view bytes, const Instruction& instruction, const Shapes& shapes) -> Status {
    if (instruction.opcode != "dot" && instruction.opcode != "convolution") return OkStatus();
    PW_ASSIGN_OR_RETURN(const int64_t products, ProductsPerElement(bytes, instruction.opcode, shapes));
    PW_ASSIGN_OR_RETURN(const Shape result, ReadShape(instruction.shape));
    out[DTypeFromXlaPrimitive(result.element_type)] += 2 * products * ElementsOf(result);
    return OkStatus();
  };
  PW_RETURN_IF_ERROR(ForEachInstruction(module, visit));
  return out;
}

}  // namespace pathways::hlo
