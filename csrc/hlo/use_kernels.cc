#include "csrc/hlo/use_kernels.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <vector>

#include "csrc/base/tensor_type.h"
#include "csrc/hlo/convolution_instruction.h"
#include "csrc/hlo/dot_instruction.h"
#include "csrc/hlo/proto.h"
#include "csrc/kernels/kernel.h"

namespace pathways::hlo {
namespace {

// Whether oneDNN was measured to be faster than XLA's code for such convolutions (docs/kernels.md). XLA has plain loops
// for groups. Without groups, what oneDNN copies costs more than it gains in small ones, and where one channel is
// padded to a whole vector it computes mostly zeros.
bool IsFaster(const kernels::Convolution& convolution) {
  using Kind = kernels::Convolution::Kind;
  constexpr double kSmall = 5e7;
  constexpr int64_t kFewChannels = 8;
  if (convolution.groups() > 1) return true;
  if (convolution.Operations() < kSmall) return false;
  const int64_t out = convolution.weights.dims[1], in = convolution.weights.dims[2];
  if (convolution.kind == Kind::kInputGradient) return in >= kFewChannels;
  return convolution.kind == Kind::kForward || std::min(in, out) > 1;
}

// A call costs some microseconds, which small products do not earn, and products with a vector are bound by memory.
bool IsFaster(const kernels::Product& product) {
  constexpr double kSmall = 2e6;
  constexpr int64_t kNarrow = 8;
  return product.Operations() >= kSmall && std::min({product.rows(), product.inner(), product.columns()}) >= kNarrow;
}

// In MLIR's text form.
std::string KernelAttributes(std::span<const int64_t> encoded, int64_t threads) {
  std::string out = "{kernel = array<i64: ";
  for (const int64_t number : encoded) out += std::to_string(number) + ", ";
  out.resize(out.size() - 2);
  return out + ">, threads = " + std::to_string(threads) + " : i64}";
}

// Writes one computation anew. What takes the place of an instruction has its id.
class KernelRewriter {
 public:
  KernelRewriter(int64_t threads, Replace what, ModuleWithKernels* counts)
      : threads_(threads), what_(what), counts_(counts) {}

  Result<std::string> Rewrite(std::string_view computation) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    PW_ASSIGN_OR_RETURN(root_id_, ReadId(computation, computation_field::kRootId));
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      PW_ASSIGN_OR_RETURN(const std::vector<int64_t> operands, Integers(bytes, instruction_field::kOperandIds));
      next_id_ = std::max(next_id_, instruction.id + 1);
      by_id_[instruction.id] = bytes;
      for (const int64_t operand : operands) users_[operand].push_back(instruction.id);
    }
    const auto edit = [this](std::string_view bytes) { return Edit(bytes); };
    PW_RETURN_IF_ERROR(EditInstructions(computation, edit, &out_));
    return std::move(out_).Take();
  }

 private:
  // An operand of a call, and how it has to lie.
  struct Operand {
    int64_t id = 0;
    LaidOutShape shape;
  };

  // Whether something stands in this instruction's place.
  Result<bool> Edit(std::string_view bytes) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
    const bool is_dot = instruction.opcode == "dot";
    if (!is_dot && instruction.opcode != "convolution") return false;
    ++counts_->left;
    PW_ASSIGN_OR_RETURN(const std::vector<int64_t> operands, Integers(bytes, instruction_field::kOperandIds));
    if (operands.size() != 2 || !by_id_.contains(operands[0]) || !by_id_.contains(operands[1])) return false;
    PW_ASSIGN_OR_RETURN(const bool done, is_dot ? EditDot(bytes, instruction, operands[0], operands[1])
                                                : EditConvolution(bytes, instruction, operands[0], operands[1]));
    if (!done) return false;
    --counts_->left;
    ++(is_dot ? counts_->products : counts_->convolutions);
    return true;
  }

  Result<bool> EditConvolution(std::string_view bytes, const Instruction& instruction, int64_t left_id,
                               int64_t right_id) {
    PW_ASSIGN_OR_RETURN(const Instruction left_operand, ReadInstruction(by_id_[left_id]));
    PW_ASSIGN_OR_RETURN(const Instruction right_operand, ReadInstruction(by_id_[right_id]));
    std::vector<int64_t> reversed;
    int64_t before_reverse = right_id;
    if (right_operand.opcode == "reverse") {
      PW_ASSIGN_OR_RETURN(reversed, Integers(by_id_[right_id], instruction_field::kDimensions));
      PW_ASSIGN_OR_RETURN(const std::vector<int64_t> from, Integers(by_id_[right_id], instruction_field::kOperandIds));
      if (from.size() != 1 || !by_id_.contains(from[0])) return false;
      before_reverse = from[0];
    }
    const Result<LaidOutShape> left = ReadLaidOutShape(left_operand.shape);
    const Result<LaidOutShape> right = ReadLaidOutShape(right_operand.shape);
    if (!left.ok() || !right.ok()) return false;
    PW_ASSIGN_OR_RETURN(const auto read, ReadConvolutionInstruction(bytes, *left, *right, reversed));
    if (!read || (what_ == Replace::kWhatIsFaster && !IsFaster(read->convolution))) return false;
    const std::vector<int64_t> encoded = read->convolution.Encode();
    const auto kernel = kernels::KernelFor(encoded, threads_);
    if (!kernel.ok()) return false;
    if (read->skips_reverse) right_id = before_reverse;
    const std::string name(instruction.name);
    if (!read->kept.empty()) {
      ProtoWriter fields;
      for (const auto& [from, to] : read->kept) {
        ProtoWriter dimension;
        dimension.Int64(1, from);
        dimension.Int64(2, to);
        dimension.Int64(3, 1);
        fields.Bytes(instruction_field::kSliceDimensions, dimension.bytes());
      }
      left_id = Write(name + ".kept", "slice", EncodeShape(read->first), {left_id}, fields.bytes());
    }
    if (!read->reversed.empty()) {
      ProtoWriter fields;
      for (const int64_t dim : read->reversed) fields.Int64(instruction_field::kDimensions, dim);
      right_id = Write(name + ".reversed", "reverse", EncodeShape(read->second), {right_id}, fields.bytes());
    }
    PW_RETURN_IF_ERROR(Call(bytes, instruction, {{{left_id, read->first}, {right_id, read->second}}}, read->result,
                            encoded, **kernel));
    return true;
  }

  Result<bool> EditDot(std::string_view bytes, const Instruction& instruction, int64_t left_id, int64_t right_id) {
    const Result<Origin> left = OriginOf(left_id, kMostLookedThrough);
    const Result<Origin> right = OriginOf(right_id, kMostLookedThrough);
    if (!left.ok() || !right.ok()) return false;
    PW_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted, OrderWanted(instruction.id));
    PW_ASSIGN_OR_RETURN(const auto read, ReadDotInstruction(bytes, left->seen, right->seen, wanted));
    if (!read || (what_ == Replace::kWhatIsFaster && !IsFaster(read->product))) return false;
    const std::vector<int64_t> encoded = read->product.Encode();
    const auto kernel = kernels::KernelFor(encoded, threads_);
    if (!kernel.ok()) return false;
    Operand first = left->As(left_id, read->left), second = right->As(right_id, read->right);
    if (read->swapped) std::swap(first, second);
    PW_RETURN_IF_ERROR(Call(bytes, instruction, {first, second}, read->result, encoded, **kernel));
    return true;
  }

  // Where the bytes of an operand come from: transposes and reshapes that copy nothing are passed by. XLA sees no need
  // then to compute a second, transposed array for the call when others use the first one as it is.
  struct Origin {
    int64_t id = 0;
    LaidOutShape shape;  // as that instruction makes it
    LaidOutShape seen;   // the operand, as it lies in these bytes

    Operand As(int64_t operand, const LaidOutShape& wanted) const {
      return wanted.order == seen.order ? Operand{id, shape} : Operand{operand, wanted};
    }
  };

  Result<Origin> OriginOf(int64_t id, int depth) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(by_id_[id]));
    PW_ASSIGN_OR_RETURN(const LaidOutShape shape, ReadLaidOutShape(instruction.shape));
    const Origin itself{id, shape, shape};
    const bool transposes = instruction.opcode == "transpose", reshapes = instruction.opcode == "reshape";
    if (depth == 0 || (!transposes && !reshapes)) return itself;
    PW_ASSIGN_OR_RETURN(const std::vector<int64_t> from, Integers(by_id_[id], instruction_field::kOperandIds));
    if (from.size() != 1 || !by_id_.contains(from[0])) return itself;
    PW_ASSIGN_OR_RETURN(Origin origin, OriginOf(from[0], depth - 1));
    std::vector<int64_t> order;
    if (reshapes) {
      order = OrderOfReshaped(origin.seen, shape.dims).value_or(order);
    } else {
      PW_ASSIGN_OR_RETURN(const std::vector<int64_t> permutation, Integers(by_id_[id], instruction_field::kDimensions));
      if (IsPermutation(permutation, origin.seen.dims.size()))
        order = OrderOfTransposed(origin.seen.order, permutation);
    }
    if (!IsPermutation(order, shape.dims.size())) return itself;
    origin.seen = {shape.element_type, shape.dims, std::move(order)};
    return origin;
  }

  // How a result should lie so that a transpose of it is no work; empty: as its shape says. That is how PyTorch makes
  // a weight's gradient, and what an optimizer reads with the weight; the module may return both, the untransposed one
  // as a copy then.
  Result<std::vector<int64_t>> OrderWanted(int64_t id) {
    std::vector<int64_t> wanted;
    for (const int64_t user_id : users_[id]) {
      PW_ASSIGN_OR_RETURN(const Instruction user, ReadInstruction(by_id_[user_id]));
      if (user_id == root_id_ && user.opcode == "tuple") continue;
      if (user.opcode != "transpose") return std::vector<int64_t>();
      PW_ASSIGN_OR_RETURN(const std::vector<int64_t> permutation,
                          Integers(by_id_[user_id], instruction_field::kDimensions));
      if (!wanted.empty() && wanted != permutation) return std::vector<int64_t>();
      wanted = permutation;
    }
    return wanted;
  }

  // `result`: how the result is to lie.
  Status Call(std::string_view bytes, const Instruction& instruction, const std::array<Operand, 2>& operands,
              const LaidOutShape& result, const std::vector<int64_t>& encoded, const kernels::Kernel& kernel) {
    const std::string name(instruction.name);
    const std::string made = EncodeShape(result);
    const std::string room =
        EncodeShape(LaidOutShape{XlaPrimitiveFromDType(DType::kU8), {std::max<int64_t>(kernel.room_bytes(), 1)}, {0}});
    ProtoWriter fields;
    // The user's line, and what orders the instruction among others.
    if (!CopyFieldsExcept(
            bytes,
            {instruction_field::kName, instruction_field::kOpcode, instruction_field::kShape,
             instruction_field::kWindow, instruction_field::kConvolutionDimensions, instruction_field::kDotDimensions,
             instruction_field::kFeatureGroups, instruction_field::kBatchGroups, instruction_field::kPrecision,
             instruction_field::kId, instruction_field::kOperandIds, instruction_field::kSharding,
             instruction_field::kBackendConfig},
            &fields)) {
      return MalformedModule("an instruction");
    }
    fields.Bytes(instruction_field::kCustomCallTarget, kKernelCall);
    fields.Bytes(instruction_field::kBackendConfig, KernelAttributes(encoded, threads_));
    fields.Bool(instruction_field::kConstrainLayout, true);
    fields.Bytes(instruction_field::kOperandShapes, EncodeShape(operands[0].shape));
    fields.Bytes(instruction_field::kOperandShapes, EncodeShape(operands[1].shape));
    fields.Int64(instruction_field::kCustomCallApiVersion, kTypedFfi);
    const int64_t call = Write(name + ".kernel", "custom-call", TupleShape({made, room}),
                               {operands[0].id, operands[1].id}, fields.bytes());
    ProtoWriter index;
    index.Int64(instruction_field::kTupleIndex, 0);
    WriteInstruction(instruction.id, name, "get-tuple-element", made, {call}, index.bytes(), &out_);
    return OkStatus();
  }

  int64_t Write(const std::string& name, std::string_view opcode, std::string_view shape,
                const std::vector<int64_t>& operands, std::string_view fields) {
    WriteInstruction(next_id_, name, opcode, shape, operands, fields, &out_);
    return next_id_++;
  }

  static constexpr int kMostLookedThrough = 8;

  const int64_t threads_;
  const Replace what_;
  ModuleWithKernels* const counts_;
  ProtoWriter out_;
  std::map<int64_t, std::string_view> by_id_;
  std::map<int64_t, std::vector<int64_t>> users_;
  int64_t root_id_ = 0;
  int64_t next_id_ = 1;
};

}  // namespace

Result<ModuleWithKernels> UseKernels(std::string_view module, int64_t threads, Replace what) {
  ModuleWithKernels out;
  PW_ASSIGN_OR_RETURN(out.module, EditComputations(module, [&](std::string_view computation, bool) {
                        return KernelRewriter(threads, what, &out).Rewrite(computation);
                      }));
  return out;
}

Result<bool> CountsOtherWork(std::string_view module) {
  constexpr std::array<std::string_view, 7> kCounted = {"add",     "subtract", "multiply", "divide",
                                                        "maximum", "minimum",  "select"};
  constexpr int64_t kEnough = 8000;  // XLA's limit is 1000, after what it simplifies
  int64_t elements = 0;
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      if (std::find(kCounted.begin(), kCounted.end(), instruction.opcode) == kCounted.end()) continue;
      PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(instruction.shape));
      int64_t count = 1;
      for (const int64_t dim : shape.dims) count = dim > kEnough ? kEnough : std::min(kEnough, count * dim);
      elements += count;
    }
  }
  return elements >= kEnough;
}

}  // namespace pathways::hlo
