#include "csrc/hlo/length_indexing.h"

#include <algorithm>
#include <optional>
#include <string>

#include "csrc/base/proto.h"
#include "csrc/hlo/literal.h"

namespace pathways::hlo {
namespace {

bool IsIndexType(DType dtype) { return dtype == DType::kS32 || dtype == DType::kS64; }

std::string SizeFields(uint32_t field, const std::vector<int64_t>& sizes) {
  ProtoWriter out;
  for (const int64_t size : sizes) out.Int64(field, size);
  return std::move(out).Take();
}

// Limits the start at operand `at` to where `part` elements fit into a growing dimension.
Status LimitStart(const GrowingInstruction& now, size_t at, int64_t offset, int64_t part, LengthWriter* writer,
                  std::vector<int64_t>* operands) {
  const GrowingShape& start = now.inputs[at]->shape;
  if (!start.IsScalar() || !IsIndexType(start.dtype)) return now.Refuse("at an index of this type");
  (*operands)[at] =
      writer->Emit("minimum", start.dtype, {}, {(*operands)[at], writer->Size(start.dtype, offset - part)});
  return OkStatus();
}

bool IsIn(const std::vector<int64_t>& list, size_t dimension) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(dimension)) != list.end();
}

// The instruction without what it promises of its indices, which does not hold of those behind the length.
Result<std::string> WithoutPromises(std::string_view instruction) {
  constexpr uint32_t kSorted = 67, kUnique = 69;  // HloInstructionProto
  ProtoWriter out;
  if (!CopyFieldsExcept(instruction, {kSorted, kUnique}, &out)) return MalformedModule("an instruction");
  return std::move(out).Take();
}

}  // namespace

Status GrowingInstruction::Refuse(std::string_view why) const {
  return Unimplemented("'" + std::string(instruction.opcode) + "' of a size that grows" + (why.empty() ? "" : " ") +
                       std::string(why));
}

Status AddGrowingSlice(const GrowingInstruction& now, LengthWriter* writer, std::vector<bool>* zero) {
  constexpr uint32_t kStart = 1, kLimit = 2, kStride = 3;
  PW_ASSIGN_OR_RETURN(const auto shorter, SubMessages(now.shorter, instruction_field::kSliceDimensions));
  PW_ASSIGN_OR_RETURN(const auto longer, SubMessages(now.longer, instruction_field::kSliceDimensions));
  if (now.inputs.size() != 1 || shorter.size() != longer.size() || longer.size() != now.shape.rank() ||
      now.inputs[0]->shape.rank() != now.shape.rank()) {
    return now.Refuse();
  }
  const GrowingValue& input = *now.inputs[0];
  ProtoWriter fields, config;
  std::vector<int64_t> dims = now.shape.dims;  // of the part
  for (size_t i = 0; i < longer.size(); ++i) {
    PW_ASSIGN_OR_RETURN(const int64_t start, ReadId(longer[i], kStart));
    PW_ASSIGN_OR_RETURN(const int64_t other_start, ReadId(shorter[i], kStart));
    PW_ASSIGN_OR_RETURN(const int64_t stride, ReadId(longer[i], kStride));
    PW_ASSIGN_OR_RETURN(int64_t limit, ReadId(longer[i], kLimit));
    const auto& offset = now.shape.offsets[i];
    if (start != other_start || start < 0 || (offset && stride != 1)) return now.Refuse();
    if (offset) {
      limit = start + now.shape.dims[i];
      if (input.shape.offsets[i] && limit > input.shape.dims[i]) {
        // All sizes are level: what lacks lies behind the length.
        dims[i] -= limit - input.shape.dims[i];
        limit = input.shape.dims[i];
      }
      if (limit > input.shape.dims[i] || dims[i] < 0) {
        return now.Refuse("beyond the " + std::to_string(input.shape.dims[i]) + " of which it is taken");
      }
      (*zero)[i] = input.zero[i] && *input.shape.offsets[i] == start + *offset;
    }
    ProtoWriter range;
    range.Int64(kStart, start);
    range.Int64(kLimit, limit);
    range.Int64(kStride, stride);
    fields.Bytes(instruction_field::kSliceDimensions, range.bytes());
    ProtoWriter edge;
    edge.Int64(2, now.shape.dims[i] - dims[i]);  // PaddingConfigDimension.edge_padding_high
    config.Bytes(1, edge.bytes());
  }
  if (dims != now.shape.dims) {
    const DType dtype = now.shape.dtype;
    if (!LiteralOf(dtype, 0)) return now.Refuse("of this type");
    const int64_t part = writer->Emit("slice", dtype, dims, now.operands, fields.bytes());
    PW_ASSIGN_OR_RETURN(const std::string shape, AtBound(now.instruction.shape, now.shape));
    ProtoWriter padding;
    padding.Bytes(instruction_field::kPaddingConfig, config.bytes());
    WriteInstruction(now.instruction.id, now.instruction.name, "pad", shape, {part, writer->Constant(dtype, 0)},
                     padding.bytes(), &writer->out());
    return OkStatus();
  }
  return writer->Write(now.longer, now.shape, std::nullopt, instruction_field::kSliceDimensions, fields.bytes());
}

Status AddGrowingDynamicSlice(const GrowingInstruction& now, LengthWriter* writer) {
  const size_t rank = now.shape.rank();
  if (now.inputs.size() != 1 + rank || now.inputs[0]->shape.rank() != rank) return now.Refuse();
  const GrowingShape& whole = now.inputs[0]->shape;
  std::vector<int64_t> operands = now.operands;
  for (size_t i = 0; i < rank; ++i) {
    // Where both grow, as many indices fit at each length as at the bound.
    if (now.shape.offsets[i] && !whole.offsets[i]) return now.Refuse("out of one that does not");
    if (now.shape.offsets[i] && whole.dims[i] - now.shape.dims[i] != *whole.offsets[i] - *now.shape.offsets[i]) {
      return now.Refuse("out of a longer one");
    }
    if (whole.offsets[i] && !now.shape.offsets[i]) {
      PW_RETURN_IF_ERROR(LimitStart(now, 1 + i, *whole.offsets[i], now.shape.dims[i], writer, &operands));
    }
  }
  return writer->Write(now.longer, now.shape, operands, instruction_field::kDynamicSliceSizes,
                       SizeFields(instruction_field::kDynamicSliceSizes, now.shape.dims));
}

Status AddGrowingUpdate(const GrowingInstruction& now, LengthWriter* writer, std::vector<bool>* zero) {
  const size_t rank = now.shape.rank();
  if (now.inputs.size() != 2 + rank || now.inputs[0]->shape.offsets != now.shape.offsets ||
      now.inputs[1]->shape.rank() != rank) {
    return now.Refuse();
  }
  const GrowingValue &whole = *now.inputs[0], &part = *now.inputs[1];
  std::vector<int64_t> operands = now.operands;
  for (size_t i = 0; i < rank; ++i) {
    // What lies behind a growing part would be written too: it has to lie behind the whole.
    if (part.shape.offsets[i] && part.shape.offsets[i] != whole.shape.offsets[i]) return now.Refuse("in a longer one");
    if (whole.shape.offsets[i] && !part.shape.offsets[i]) {
      PW_RETURN_IF_ERROR(LimitStart(now, 2 + i, *whole.shape.offsets[i], part.shape.dims[i], writer, &operands));
    }
    (*zero)[i] = whole.zero[i] && (!part.shape.offsets[i] || part.zero[i]);
  }
  return writer->Write(now.longer, now.shape, operands);
}

Status AddGrowingGather(const GrowingInstruction& now, LengthWriter* writer) {
  PW_ASSIGN_OR_RETURN(const auto numbers, SubMessages(now.longer, instruction_field::kGatherDimensions));
  PW_ASSIGN_OR_RETURN(auto slice, Integers(now.longer, instruction_field::kGatherSliceSizes));
  PW_ASSIGN_OR_RETURN(const auto short_slice, Integers(now.shorter, instruction_field::kGatherSliceSizes));
  if (numbers.size() != 1 || now.inputs.size() != 2) return now.Refuse();
  const GrowingShape &whole = now.inputs[0]->shape, &indices = now.inputs[1]->shape;
  if (slice.size() != whole.rank() || short_slice.size() != whole.rank()) return MalformedModule("a gather");
  PW_ASSIGN_OR_RETURN(const auto offset_dims, Integers(numbers[0], 1));
  PW_ASSIGN_OR_RETURN(const auto collapsed, Integers(numbers[0], 2));
  PW_ASSIGN_OR_RETURN(const auto index_map, Integers(numbers[0], 3));
  PW_ASSIGN_OR_RETURN(const int64_t vector_dim, ReadId(numbers[0], 4));
  PW_ASSIGN_OR_RETURN(const auto batch, Integers(numbers[0], 5));
  PW_ASSIGN_OR_RETURN(const auto index_batch, Integers(numbers[0], 6));
  const auto vector_at = static_cast<size_t>(vector_dim);
  if (vector_at < indices.rank() && indices.offsets[vector_at]) return now.Refuse("in the indices' own dimension");
  if (batch.size() != index_batch.size()) return MalformedModule("a gather");
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto a = static_cast<size_t>(batch[i]), b = static_cast<size_t>(index_batch[i]);
    if (a >= whole.rank() || b >= indices.rank()) return MalformedModule("a gather");
    if (whole.offsets[a] != indices.offsets[b]) return now.Refuse();
  }
  std::vector<int64_t> operands = now.operands;
  std::vector<std::optional<int64_t>> window;  // of the dimensions that are not collapsed
  for (size_t i = 0; i < whole.rank(); ++i) {
    const bool grows = slice[i] != short_slice[i];
    // A part that grows is the whole of its dimension, so that its index is 0.
    const std::optional<int64_t> offset = whole.offsets[i];
    if (grows && (!offset || short_slice[i] != now.shorter_length + *offset)) return now.Refuse();
    if (!IsIn(collapsed, i) && !IsIn(batch, i)) window.push_back(grows ? offset : std::nullopt);
    if (grows) slice[i] = whole.dims[i];
    if (!offset || grows || IsIn(batch, i)) continue;
    const auto found = std::find(index_map.begin(), index_map.end(), static_cast<int64_t>(i));
    if (found == index_map.end()) continue;  // from the beginning
    if (!IsIndexType(indices.dtype)) return now.Refuse("at indices of this type");
    const int64_t last =
        writer->Broadcast(indices.dtype, indices.dims, writer->Size(indices.dtype, *offset - slice[i]));
    const int64_t limited = writer->Emit("minimum", indices.dtype, indices.dims, {operands[1], last});
    if (vector_at >= indices.rank() || index_map.size() == 1) {
      operands[1] = limited;
      continue;
    }
    const int64_t component = writer->Broadcast(
        DType::kS32, indices.dims, writer->Constant(DType::kS32, static_cast<uint64_t>(found - index_map.begin())));
    const int64_t is_it = writer->Compare("EQ", indices.dims, writer->Iota(indices.dims, vector_at), component);
    operands[1] = writer->Emit("select", indices.dtype, indices.dims, {is_it, limited, operands[1]});
  }
  // The result's dimensions: of the window at `offset_dims`, else of the indices, in order.
  size_t of_window = 0, of_indices = 0;
  for (size_t i = 0; i < now.shape.rank(); ++i) {
    std::optional<int64_t> expected;
    if (IsIn(offset_dims, i)) {
      if (of_window >= window.size()) return MalformedModule("a gather");
      expected = window[of_window++];
    } else {
      if (of_indices == vector_at) ++of_indices;
      if (of_indices >= indices.rank()) return MalformedModule("a gather");
      expected = indices.offsets[of_indices++];
    }
    if (expected != now.shape.offsets[i]) return now.Refuse();
  }
  PW_ASSIGN_OR_RETURN(const std::string instruction, WithoutPromises(now.longer));
  return writer->Write(instruction, now.shape, operands, instruction_field::kGatherSliceSizes,
                       SizeFields(instruction_field::kGatherSliceSizes, slice));
}

Status AddGrowingScatter(const GrowingInstruction& now, LengthWriter* writer) {
  constexpr uint32_t kScatterDimensions = 48;  // HloInstructionProto
  PW_ASSIGN_OR_RETURN(const auto numbers, SubMessages(now.longer, kScatterDimensions));
  if (numbers.size() != 1 || now.inputs.size() != 3) return now.Refuse();
  const GrowingShape &whole = now.inputs[0]->shape, &indices = now.inputs[1]->shape, &part = now.inputs[2]->shape;
  PW_ASSIGN_OR_RETURN(const auto windows, Integers(numbers[0], 1));
  PW_ASSIGN_OR_RETURN(const auto inserted, Integers(numbers[0], 2));
  PW_ASSIGN_OR_RETURN(const int64_t vector_dim, ReadId(numbers[0], 4));
  PW_ASSIGN_OR_RETURN(const auto batch, Integers(numbers[0], 5));
  if (!batch.empty() || now.shape.offsets != whole.offsets) return now.Refuse();
  // The dimensions of what is written: those of a window, and those of the indices.
  std::vector<std::optional<int64_t>> window, of_indices;
  for (size_t i = 0; i < part.rank(); ++i) (IsIn(windows, i) ? window : of_indices).push_back(part.offsets[i]);
  std::vector<std::optional<int64_t>> expected;
  const auto vector_at = static_cast<size_t>(vector_dim);
  std::vector<int64_t> operands = now.operands;
  for (size_t i = 0; i < indices.rank(); ++i) {
    if (i == vector_at) {
      if (indices.offsets[i]) return now.Refuse("in the indices' own dimension");
      continue;
    }
    expected.push_back(indices.offsets[i]);
    if (!indices.offsets[i]) continue;
    // What lies outside is not written.
    if (!IsIndexType(indices.dtype)) return now.Refuse("at indices of this type");
    operands[1] = writer->Masked(indices, operands[1], i, writer->Constant(indices.dtype, static_cast<uint64_t>(-1)));
  }
  if (expected != of_indices) return now.Refuse();
  // A window that grows is the whole of its dimension; of other dimensions that grow, it is one element. What is
  // written between length and bound is not seen.
  size_t next = 0;
  for (size_t i = 0; i < whole.rank(); ++i) {
    if (IsIn(inserted, i)) continue;
    if (next >= window.size()) return MalformedModule("a scatter");
    if (window[next++] != whole.offsets[i]) return now.Refuse("in part");
  }
  PW_ASSIGN_OR_RETURN(const std::string instruction, WithoutPromises(now.longer));
  return writer->Write(instruction, now.shape, operands);
}

}  // namespace pathways::hlo
