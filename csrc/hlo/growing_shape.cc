#include "csrc/hlo/growing_shape.h"

#include <algorithm>

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

Result<GrowingShape> ReadNestedShape(std::string_view shorter, std::string_view longer, const LengthBound& bound,
                                     int depth) {
  constexpr int kDeepest = 16;
  PW_ASSIGN_OR_RETURN(const Shape a, ReadShape(shorter));
  PW_ASSIGN_OR_RETURN(const Shape b, ReadShape(longer));
  if (a.element_type != b.element_type || a.dims.size() != b.dims.size() || a.elements.size() != b.elements.size() ||
      depth > kDeepest) {
    return MalformedModule("a shape");
  }
  if (a.dynamic || b.dynamic) return Unimplemented("expected static shapes, got a dynamic one");
  GrowingShape out;
  out.dtype = DTypeFromXlaPrimitive(a.element_type);
  out.is_tuple = a.is_tuple();
  for (size_t i = 0; i < a.dims.size(); ++i) {
    if (b.dims[i] != a.dims[i] && b.dims[i] != a.dims[i] + 1) {
      return Unimplemented("expected sizes that are equal or grow by one, got " + std::to_string(a.dims[i]) + " and " +
                           std::to_string(b.dims[i]));
    }
    const bool grows = b.dims[i] != a.dims[i];
    out.offsets.push_back(grows ? std::optional(a.dims[i] - bound.shorter) : std::nullopt);
    out.dims.push_back(grows ? bound.bound : a.dims[i]);
    if (out.dims.back() < 0 || out.dims.back() > INT32_MAX) {
      if (!grows) continue;
      return InvalidArgument("expected a bound at which all sizes are at least 0 and fit 31 bits, got " +
                             std::to_string(bound.bound));
    }
  }
  for (size_t i = 0; i < a.elements.size(); ++i) {
    PW_ASSIGN_OR_RETURN(GrowingShape element, ReadNestedShape(a.elements[i], b.elements[i], bound, depth + 1));
    out.elements.push_back(std::move(element));
  }
  return out;
}

// The fixed sizes before the first growing dimension, between them, and behind the last, each multiplied.
std::vector<int64_t> FixedProducts(const GrowingShape& shape) {
  std::vector<int64_t> out{1};
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (shape.offsets[i]) {
      out.push_back(1);
    } else if (__builtin_mul_overflow(out.back(), shape.dims[i], &out.back())) {
      return {};
    }
  }
  return out;
}

}  // namespace

bool GrowingShape::grows() const {
  return std::any_of(offsets.begin(), offsets.end(), [](const auto& offset) { return offset.has_value(); }) ||
         std::any_of(elements.begin(), elements.end(), [](const GrowingShape& element) { return element.grows(); });
}

Result<GrowingShape> ReadGrowingShape(std::string_view shorter, std::string_view longer, const LengthBound& bound) {
  return ReadNestedShape(shorter, longer, bound, 0);
}

Result<std::string> AtBound(std::string_view encoded, const GrowingShape& shape) {
  ProtoWriter out;
  ProtoReader reader(encoded);
  ProtoField field;
  size_t element = 0;
  for (const int64_t dim : shape.dims) out.Int64(shape_field::kDimensions, dim);
  while (reader.Next(&field)) {
    if (field.number == shape_field::kDimensions) continue;
    if (!field.is(shape_field::kTupleShapes, WireType::kBytes)) {
      out.Raw(field.raw);
      continue;
    }
    if (element >= shape.elements.size()) return MalformedModule("a shape");
    PW_ASSIGN_OR_RETURN(const std::string each, AtBound(field.bytes, shape.elements[element++]));
    out.Bytes(field.number, each);
  }
  if (!reader.ok()) return MalformedModule("a shape");
  return std::move(out).Take();
}

bool ReshapeKeepsGrowing(const GrowingShape& from, const GrowingShape& to) {
  std::vector<int64_t> a, b;  // the offsets in order
  for (const auto& offset : from.offsets) {
    if (offset) a.push_back(*offset);
  }
  for (const auto& offset : to.offsets) {
    if (offset) b.push_back(*offset);
  }
  const std::vector<int64_t> products = FixedProducts(from);
  return a == b && !products.empty() && products == FixedProducts(to);
}

}  // namespace pathways::hlo
