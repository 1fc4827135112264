#include "csrc/hlo/length_entry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/hlo/elementwise.h"
#include "csrc/hlo/length_indexing.h"
#include "csrc/hlo/length_windows.h"
#include "csrc/hlo/length_writer.h"
#include "csrc/hlo/literal.h"
#include "csrc/hlo/proto.h"
#include "csrc/hlo/reduction_identity.h"

namespace pathways::hlo {
namespace {

class EntryRewriter {
 public:
  EntryRewriter(const ComputationsById& computations, const LengthBound& bound, int64_t first_id, int64_t parameter)
      : computations_(computations), bound_(bound), writer_(first_id, parameter) {}

  Status Begin() {
    writer_.Size(DType::kS32, 0);  // the parameter, even if nothing uses it
    return OkStatus();
  }

  Status Add(std::string_view shorter, std::string_view longer) {
    PW_ASSIGN_OR_RETURN(const Instruction short_instruction, ReadInstruction(shorter));
    GrowingInstruction now;
    now.shorter = shorter;
    now.longer = longer;
    now.shorter_length = bound_.shorter;
    PW_ASSIGN_OR_RETURN(now.instruction, ReadInstruction(longer));
    PW_ASSIGN_OR_RETURN(now.operands, Integers(longer, instruction_field::kOperandIds));
    PW_ASSIGN_OR_RETURN(now.shape, ReadGrowingShape(short_instruction.shape, now.instruction.shape, bound_));
    bool grows = now.shape.grows();
    for (const int64_t operand : now.operands) {
      const auto found = known_.find(operand);
      if (found == known_.end()) return MalformedModule("operands before their users");
      now.inputs.push_back(&found->second);
      grows = grows || found->second.shape.grows();
    }
    now.zero.resize(now.shape.rank());
    if (grows) {
      PW_RETURN_IF_ERROR(AddGrowing(&now));
    } else {
      writer_.out().Bytes(computation_field::kInstructions, longer);
    }
    known_[now.instruction.id] = {std::move(now.shape), std::move(now.zero)};
    return OkStatus();
  }

  LengthWriter& writer() { return writer_; }

 private:
  Status AddGrowing(GrowingInstruction* now) {
    const std::string_view opcode = now->instruction.opcode;
    if (now->instruction.sharding) return now->Refuse("with a sharding");
    if (opcode == "parameter" || opcode == "iota" || opcode == "tuple" || opcode == "get-tuple-element") {
      return writer_.Write(now->longer, now->shape);
    }
    if (IsElementwise(opcode)) return AddElementwise(now);
    if (opcode == "broadcast") return AddBroadcast(now);
    if (opcode == "reshape") return AddReshape(now);
    if (opcode == "transpose") return AddTranspose(now);
    if (opcode == "reverse") return AddReverse(now);
    if (opcode == "dot") return AddDot(now);
    if (opcode == "reduce") return AddReduce(now);
    if (opcode == "concatenate") return AddConcatenate(now);
    if (opcode == "slice") return AddGrowingSlice(*now, &writer_, &now->zero);
    if (opcode == "dynamic-slice") return AddGrowingDynamicSlice(*now, &writer_);
    if (opcode == "dynamic-update-slice") return AddGrowingUpdate(*now, &writer_, &now->zero);
    if (opcode == "gather") return AddGrowingGather(*now, &writer_);
    if (opcode == "scatter") return AddGrowingScatter(*now, &writer_);
    if (opcode == "pad") return AddGrowingPad(*now, &writer_);
    if (opcode == "reduce-window") return AddWindow(*now);
    if (opcode == "batch-norm-training" || opcode == "batch-norm-inference") {
      return AddGrowingNormalization(*now, &writer_);
    }
    if (opcode == "constant") return AddProgression(*now);
    return now->Refuse();
  }

  Status AddWindow(const GrowingInstruction& now) {
    PW_ASSIGN_OR_RETURN(const auto called, Integers(now.longer, instruction_field::kCalledComputationIds));
    if (called.size() != 1 || !computations_.contains(called[0])) return now.Refuse();
    return AddGrowingWindow(now, computations_.at(called[0]), &writer_);
  }

  Status AddProgression(const GrowingInstruction& now) {
    PW_ASSIGN_OR_RETURN(const auto literals, SubMessages(now.longer, instruction_field::kLiteral));
    const auto progression = literals.size() == 1 ? ProgressionOf(literals[0], now.shape.dtype) : std::nullopt;
    if (!progression || now.shape.rank() != 1) return now.Refuse();
    const DType dtype = now.shape.dtype;
    const auto spread = [&](int64_t value) {
      return writer_.Broadcast(dtype, now.shape.dims, writer_.Constant(dtype, static_cast<uint64_t>(value)));
    };
    int64_t id = writer_.Iota(now.shape.dims, 0);
    if (dtype != DType::kS32) id = writer_.Emit("convert", dtype, now.shape.dims, {id});
    id = writer_.Emit("multiply", dtype, now.shape.dims, {id, spread(progression->step)});
    PW_ASSIGN_OR_RETURN(const std::string shape, AtBound(now.instruction.shape, now.shape));
    WriteInstruction(now.instruction.id, now.instruction.name, "add", shape, {id, spread(progression->first)}, "",
                     &writer_.out());
    return OkStatus();
  }

  Status AddElementwise(GrowingInstruction* now) {
    bool zeros = KeepsZeros(now->instruction.opcode);
    for (const GrowingValue* input : now->inputs) {
      if (!input->shape.IsScalar() && input->shape.offsets != now->shape.offsets) return now->Refuse();
      zeros = zeros && !input->shape.IsScalar();
    }
    for (size_t i = 0; zeros && i < now->shape.rank(); ++i) {
      now->zero[i] = std::all_of(now->inputs.begin(), now->inputs.end(),
                                 [i](const GrowingValue* input) { return input->zero[i]; });
    }
    return writer_.Write(now->longer, now->shape);
  }

  // Which dimension of its only operand each of the result's is.
  Status AddMapped(GrowingInstruction* now, const std::vector<std::optional<size_t>>& from) {
    const GrowingValue& input = *now->inputs[0];
    for (size_t i = 0; i < now->shape.rank(); ++i) {
      if (!from[i]) continue;
      if (*from[i] >= input.shape.rank() || input.shape.offsets[*from[i]] != now->shape.offsets[i]) {
        return now->Refuse();
      }
      now->zero[i] = input.zero[*from[i]];
    }
    return writer_.Write(now->longer, now->shape);
  }

  Status AddBroadcast(GrowingInstruction* now) {
    PW_ASSIGN_OR_RETURN(const auto dimensions, Integers(now->longer, instruction_field::kDimensions));
    if (now->inputs.size() != 1 || dimensions.size() != now->inputs[0]->shape.rank()) return now->Refuse();
    std::vector<std::optional<size_t>> from(now->shape.rank());
    for (size_t i = 0; i < dimensions.size(); ++i) {
      const auto to = static_cast<size_t>(dimensions[i]);
      if (to >= from.size()) return now->Refuse();
      from[to] = i;
    }
    return AddMapped(now, from);
  }

  Status AddTranspose(GrowingInstruction* now) {
    PW_ASSIGN_OR_RETURN(const auto dimensions, Integers(now->longer, instruction_field::kDimensions));
    if (now->inputs.size() != 1 || dimensions.size() != now->shape.rank()) return now->Refuse();
    return AddMapped(now, {dimensions.begin(), dimensions.end()});
  }

  Status AddReshape(GrowingInstruction* now) {
    if (now->inputs.size() != 1) return now->Refuse();
    const GrowingValue& input = *now->inputs[0];
    if (!ReshapeKeepsGrowing(input.shape, now->shape)) return now->Refuse("that does not stay a dimension");
    size_t from = 0;
    for (size_t to = 0; to < now->shape.rank(); ++to) {
      if (!now->shape.offsets[to]) continue;
      while (!input.shape.offsets[from]) ++from;
      now->zero[to] = input.zero[from++];
    }
    return writer_.Write(now->longer, now->shape);
  }

  Status AddReverse(GrowingInstruction* now) {
    PW_ASSIGN_OR_RETURN(const auto dimensions, Integers(now->longer, instruction_field::kDimensions));
    std::vector<std::optional<size_t>> from(now->shape.rank());
    for (size_t i = 0; i < from.size(); ++i) from[i] = i;
    for (const int64_t dimension : dimensions) {
      const auto at = static_cast<size_t>(dimension);
      if (now->inputs.size() != 1 || at >= from.size() || now->shape.offsets[at]) return now->Refuse();
    }
    return AddMapped(now, from);
  }

  // The operand with zeros behind the length in a growing dimension; nothing for elements that have none.
  std::optional<int64_t> WithZeros(const GrowingValue& input, int64_t id, size_t dimension) {
    if (input.zero[dimension]) return id;
    if (!LiteralOf(input.shape.dtype, 0)) return std::nullopt;
    return writer_.Masked(input.shape, id, dimension, writer_.Constant(input.shape.dtype, 0));
  }

  Status AddDot(GrowingInstruction* now) {
    PW_ASSIGN_OR_RETURN(const auto numbers, SubMessages(now->longer, instruction_field::kDotDimensions));
    if (numbers.size() != 1 || now->inputs.size() != 2) return now->Refuse();
    std::array<std::vector<int64_t>, 4> of;  // contracted of the left and of the right, batch of both
    for (uint32_t i = 0; i < of.size(); ++i) {
      PW_ASSIGN_OR_RETURN(of[i], Integers(numbers[0], i + 1));
    }
    std::vector<std::optional<int64_t>> expected;
    std::vector<int64_t> operands = now->operands;
    for (size_t side = 0; side < 2; ++side) {
      const GrowingValue& input = *now->inputs[side];
      std::vector<bool> used(input.shape.rank());
      for (const size_t list : {2 + side, side}) {
        for (const int64_t dimension : of[list]) {
          const auto at = static_cast<size_t>(dimension);
          if (at >= used.size() || used[at]) return MalformedModule("a dot");
          used[at] = true;
          if (list == 2) expected.push_back(input.shape.offsets[at]);
          if (list != side || !input.shape.offsets[at]) continue;
          const auto zeros = WithZeros(input, operands[side], at);
          if (!zeros) return now->Refuse();
          operands[side] = *zeros;
        }
      }
      for (size_t i = 0; i < used.size(); ++i) {
        if (!used[i]) expected.push_back(input.shape.offsets[i]);
      }
    }
    for (const size_t list : {size_t{0}, size_t{2}}) {
      if (of[list].size() != of[list + 1].size()) return MalformedModule("a dot");
      for (size_t i = 0; i < of[list].size(); ++i) {
        if (now->inputs[0]->shape.offsets[static_cast<size_t>(of[list][i])] !=
            now->inputs[1]->shape.offsets[static_cast<size_t>(of[list + 1][i])]) {
          return now->Refuse();
        }
      }
    }
    if (expected != now->shape.offsets) return now->Refuse();
    return writer_.Write(now->longer, now->shape, operands);
  }

  Status AddReduce(GrowingInstruction* now) {
    PW_ASSIGN_OR_RETURN(const auto dimensions, Integers(now->longer, instruction_field::kDimensions));
    PW_ASSIGN_OR_RETURN(const auto called, Integers(now->longer, instruction_field::kCalledComputationIds));
    const size_t count = now->inputs.size() / 2;
    if (count == 0 || now->inputs.size() % 2 != 0 || called.size() != 1 || !computations_.contains(called[0]) ||
        now->shape.is_tuple != (count > 1) || (count > 1 && now->shape.elements.size() != count)) {
      return now->Refuse();
    }
    const std::string_view computation = computations_.at(called[0]);
    std::vector<int64_t> operands = now->operands;
    for (size_t i = 0; i < count; ++i) {
      const GrowingShape& input = now->inputs[i]->shape;
      if (!now->inputs[count + i]->shape.IsScalar() || input.offsets != now->inputs[0]->shape.offsets) {
        return now->Refuse();
      }
      std::vector<std::optional<int64_t>> kept;
      for (size_t at = 0; at < input.rank(); ++at) {
        if (std::find(dimensions.begin(), dimensions.end(), static_cast<int64_t>(at)) == dimensions.end()) {
          kept.push_back(input.offsets[at]);
        } else if (input.offsets[at]) {
          PW_ASSIGN_OR_RETURN(const int64_t fill, FillOf(*now, computation, count, i));
          operands[i] = writer_.Masked(input, operands[i], at, fill);
        }
      }
      if ((count > 1 ? now->shape.elements[i] : now->shape).offsets != kept) return now->Refuse();
    }
    return writer_.Write(now->longer, now->shape, operands);
  }

  // What stands behind the length in operand `i` of a reduction of `count`, a scalar's id.
  Result<int64_t> FillOf(const GrowingInstruction& now, std::string_view computation, size_t count, size_t i) {
    if (count == 1) {
      const DType dtype = now.inputs[0]->shape.dtype;
      PW_ASSIGN_OR_RETURN(const auto identity, IdentityOf(computation, dtype));
      if (identity && LiteralOf(dtype, *identity)) return writer_.Constant(dtype, *identity);
    }
    PW_ASSIGN_OR_RETURN(const bool selects, Selects(computation, count));
    if (!selects) return now.Refuse("by a computation of its own");
    return now.operands[count + i];
  }

  Status AddConcatenate(GrowingInstruction* now) {
    PW_ASSIGN_OR_RETURN(const auto dimensions, Integers(now->longer, instruction_field::kDimensions));
    if (dimensions.size() != 1 || now->inputs.empty()) return now->Refuse();
    const auto along = static_cast<size_t>(dimensions[0]);
    if (along >= now->shape.rank()) return MalformedModule("a concatenation");
    std::optional<size_t> growing;
    int64_t before = 0, behind = 0;  // what lies around it
    for (size_t i = 0; i < now->inputs.size(); ++i) {
      const GrowingShape& shape = now->inputs[i]->shape;
      if (shape.rank() != now->shape.rank()) return now->Refuse();
      for (size_t at = 0; at < shape.rank(); ++at) {
        if (at != along && shape.offsets[at] != now->shape.offsets[at]) return now->Refuse();
      }
      if (shape.offsets[along]) {
        if (growing) return now->Refuse("of two of them");
        growing = i;
      } else {
        (growing ? behind : before) += shape.dims[along];
      }
    }
    for (size_t at = 0; at < now->shape.rank(); ++at) {
      now->zero[at] = std::all_of(now->inputs.begin(), now->inputs.end(),
                                  [at](const GrowingValue* input) { return input->zero[at]; });
    }
    if (!growing) return now->shape.offsets[along] ? now->Refuse() : writer_.Write(now->longer, now->shape);
    const GrowingValue& whole = *now->inputs[*growing];
    const int64_t offset = *whole.shape.offsets[along];
    if (now->shape.offsets[along] != offset + before + behind) return now->Refuse();
    now->zero[along] = whole.zero[along];
    const bool is_last = *growing + 1 == now->inputs.size();
    if (is_last && before + whole.shape.dims[along] == now->shape.dims[along]) {
      return writer_.Write(now->longer, now->shape);
    }
    now->zero[along] = true;
    return WriteAround(*now, along, *growing, before);
  }

  // A concatenation along a growing dimension: what stands around its growing operand is written over what lies around
  // its length.
  Status WriteAround(const GrowingInstruction& now, size_t along, size_t growing, int64_t before) {
    const GrowingValue& whole = *now.inputs[growing];
    const auto zeros = WithZeros(whole, now.operands[growing], along);
    if (!zeros || now.inputs.size() < 2) return now.Refuse();
    const DType dtype = now.shape.dtype;
    int64_t so_far = *zeros;
    const int64_t behind = now.shape.dims[along] - whole.shape.dims[along] - before;
    if (before != 0 || behind != 0) {
      ProtoWriter config, fields;
      for (size_t at = 0; at < now.shape.rank(); ++at) {
        ProtoWriter dimension;
        dimension.Int64(1, at == along ? before : 0);  // PaddingConfigDimension.edge_padding_low
        dimension.Int64(2, at == along ? behind : 0);  // .edge_padding_high
        config.Bytes(1, dimension.bytes());
      }
      fields.Bytes(instruction_field::kPaddingConfig, config.bytes());
      so_far = writer_.Emit("pad", dtype, now.shape.dims, {so_far, writer_.Constant(dtype, 0)}, fields.bytes());
    }
    int64_t from = 0;  // of the beginning, or of the end of the growing operand
    const int64_t none = writer_.Constant(DType::kS32, 0);
    const size_t last = growing + 1 == now.inputs.size() ? growing - 1 : now.inputs.size() - 1;
    for (size_t i = 0; i <= last; ++i) {
      if (i == growing) {
        from = *whole.shape.offsets[along] + before;
        continue;
      }
      std::vector<int64_t> operands{so_far, now.operands[i]};
      operands.resize(2 + now.shape.rank(), none);
      operands[2 + along] =
          i < growing ? writer_.Constant(DType::kS32, static_cast<uint64_t>(from)) : writer_.Size(DType::kS32, from);
      from += now.inputs[i]->shape.dims[along];
      if (i < last) {
        so_far = writer_.Emit("dynamic-update-slice", dtype, now.shape.dims, operands);
        continue;
      }
      PW_ASSIGN_OR_RETURN(const std::string shape, AtBound(now.instruction.shape, now.shape));
      PW_ASSIGN_OR_RETURN(const auto metadata, SubMessages(now.longer, instruction_field::kMetadata));
      ProtoWriter kept;
      for (const std::string_view each : metadata) kept.Bytes(instruction_field::kMetadata, each);
      WriteInstruction(now.instruction.id, now.instruction.name, "dynamic-update-slice", shape, operands, kept.bytes(),
                       &writer_.out());
    }
    return OkStatus();
  }

  const ComputationsById& computations_;
  const LengthBound bound_;
  LengthWriter writer_;
  std::map<int64_t, GrowingValue> known_;
};

}  // namespace

Result<std::string> EntryWithLength(std::string_view shorter, std::string_view longer,
                                    const ComputationsById& computations, const LengthBound& bound, int64_t parameter) {
  PW_ASSIGN_OR_RETURN(const auto short_instructions, SubMessages(shorter, computation_field::kInstructions));
  PW_ASSIGN_OR_RETURN(const auto short_shapes, SubMessages(shorter, computation_field::kProgramShape));
  PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(longer, computation_field::kInstructions));
  int64_t first_id = 1;
  for (const std::string_view bytes : instructions) {
    PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
    first_id = std::max(first_id, instruction.id + 1);
  }
  EntryRewriter rewriter(computations, bound, first_id, parameter);
  PW_RETURN_IF_ERROR(rewriter.Begin());
  ProtoReader reader(longer);
  ProtoField field;
  size_t at = 0;
  while (reader.Next(&field)) {
    if (field.is(computation_field::kInstructions, WireType::kBytes)) {
      if (at >= short_instructions.size()) return MalformedModule("two modules of as many instructions");
      PW_RETURN_IF_ERROR(rewriter.Add(short_instructions[at++], field.bytes));
    } else if (field.is(computation_field::kProgramShape, WireType::kBytes)) {
      if (short_shapes.size() != 1) return MalformedModule("one program shape");
      PW_ASSIGN_OR_RETURN(const std::string shape, ProgramShapeWithLength(short_shapes[0], field.bytes, bound));
      rewriter.writer().out().Bytes(field.number, shape);
    } else {
      rewriter.writer().out().Raw(field.raw);
    }
  }
  if (!reader.ok()) return MalformedModule("a computation");
  return std::move(rewriter.writer()).Take();
}

Result<std::string> ProgramShapeWithLength(std::string_view shorter, std::string_view longer,
                                           const LengthBound& bound) {
  std::vector<std::string_view> short_shapes;
  ProtoReader shorter_reader(shorter), reader(longer);
  ProtoField field;
  const auto is_shape = [&field] {
    return field.type == WireType::kBytes && field.number != program_shape_field::kParameterNames;
  };
  while (shorter_reader.Next(&field)) {
    if (is_shape()) short_shapes.push_back(field.bytes);
  }
  ProtoWriter out;
  size_t at = 0;
  while (reader.Next(&field)) {
    if (!is_shape()) {
      out.Raw(field.raw);
      continue;
    }
    if (at >= short_shapes.size()) return MalformedModule("program shapes of as many parameters");
    PW_ASSIGN_OR_RETURN(const GrowingShape shape, ReadGrowingShape(short_shapes[at++], field.bytes, bound));
    PW_ASSIGN_OR_RETURN(const std::string bounded, AtBound(field.bytes, shape));
    out.Bytes(field.number, bounded);
  }
  if (!reader.ok() || !shorter_reader.ok()) return MalformedModule("a program shape");
  return WithParameter(out.bytes(), ArrayShape(DType::kS32, {}), "length");
}

}  // namespace pathways::hlo
