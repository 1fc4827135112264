#include "csrc/hlo/laid_out_shape.h"

#include <algorithm>
#include <numeric>

#include "csrc/hlo/proto.h"

namespace pathways::hlo {

Result<LaidOutShape> ReadLaidOutShape(std::string_view bytes) {
  PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(bytes));
  if (shape.is_tuple() || shape.dynamic) return Unimplemented("expected an array of static shape");
  LaidOutShape out{shape.element_type, shape.dims, {}};
  PW_ASSIGN_OR_RETURN(const auto layouts, SubMessages(bytes, shape_field::kLayout));
  if (!layouts.empty()) {
    ProtoReader reader(layouts.back());
    ProtoField field;
    bool ok = true;
    while (reader.Next(&field)) {
      if (field.number == 1) ok = ok && ForEachInt64(field, [&out](int64_t dim) { out.order.push_back(dim); });
      if (field.number == 6) return Unimplemented("expected a layout without tiles");
    }
    if (!reader.ok() || !ok) return MalformedModule("a layout");
    std::reverse(out.order.begin(), out.order.end());
  }
  if (!IsPermutation(out.order, out.dims.size())) {
    out.order.resize(out.dims.size());
    std::iota(out.order.begin(), out.order.end(), 0);
  }
  return out;
}

std::string EncodeShape(const LaidOutShape& shape) {
  ProtoWriter out, layout;
  out.Int64(shape_field::kElementType, shape.element_type);
  for (const int64_t dim : shape.dims) out.Int64(shape_field::kDimensions, dim);
  for (size_t i = shape.order.size(); i-- > 0;) layout.Int64(1, shape.order[i]);  // LayoutProto.minor_to_major
  out.Bytes(shape_field::kLayout, layout.bytes());
  for (size_t i = 0; i < shape.dims.size(); ++i) out.Int64(shape_field::kIsDynamicDimension, 0);
  return std::move(out).Take();
}

std::vector<int64_t> StridesOf(const LaidOutShape& shape) {
  std::vector<int64_t> out(shape.dims.size());
  int64_t stride = 1;
  for (size_t i = shape.order.size(); i-- > 0;) {
    const auto dim = static_cast<size_t>(shape.order[i]);
    out[dim] = stride;
    stride *= shape.dims[dim];
  }
  return out;
}

bool IsPermutation(std::vector<int64_t> order, size_t rank) {
  std::sort(order.begin(), order.end());
  std::vector<int64_t> all(rank);
  std::iota(all.begin(), all.end(), 0);
  return order == all;
}

std::vector<int64_t> OrderOfTransposed(const std::vector<int64_t>& operand, const std::vector<int64_t>& permutation) {
  std::vector<int64_t> out;
  for (const int64_t dim : operand) {
    out.push_back(std::find(permutation.begin(), permutation.end(), dim) - permutation.begin());
  }
  return out;
}

std::optional<std::vector<int64_t>> OrderOfReshaped(const LaidOutShape& operand, const std::vector<int64_t>& to) {
  // Both row-major sequences of sizes fall into the shortest parts of equal product; a part keeps its elements' order
  // if its dimensions follow one another in memory.
  struct Part {
    std::vector<int64_t> from, to;  // dimensions
  };
  std::vector<Part> parts;
  const std::vector<int64_t>& from = operand.dims;
  if (std::find(from.begin(), from.end(), 0) != from.end()) return std::nullopt;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    Part part;
    int64_t left = 1, right = 1;
    do {
      const bool take_left = j >= to.size() || (i < from.size() && left <= right);
      if (take_left && i >= from.size()) return std::nullopt;
      int64_t& product = take_left ? left : right;
      if (__builtin_mul_overflow(product, take_left ? from[i] : to[j], &product)) return std::nullopt;
      if (take_left) {
        part.from.push_back(static_cast<int64_t>(i++));
      } else {
        part.to.push_back(static_cast<int64_t>(j++));
      }
    } while (left != right);
    parts.push_back(std::move(part));
  }
  std::vector<int64_t> out;
  for (size_t at = 0; at < operand.order.size();) {
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& each) {
      return !each.from.empty() && each.from[0] == operand.order[at];
    });
    if (part == parts.end()) return std::nullopt;
    for (const int64_t dim : part->from) {
      if (at >= operand.order.size() || operand.order[at++] != dim) return std::nullopt;
    }
    out.insert(out.end(), part->to.begin(), part->to.end());
  }
  for (const Part& part : parts) {  // of size 1, from nothing
    if (part.from.empty()) out.insert(out.end(), part.to.begin(), part.to.end());
  }
  return out;
}

}  // namespace pathways::hlo
