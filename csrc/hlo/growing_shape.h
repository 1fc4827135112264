// A shape in two modules of consecutive lengths: which of its dimensions grow, and the shape at a bound.
//
// Threads: plain values, and pure functions of bytes. Malformed bytes give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_GROWING_SHAPE_H_
#define PTPATHWAYS_HLO_GROWING_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways::hlo {

struct LengthBound {
  int64_t shorter = 0;  // the length of the shorter module
  int64_t bound = 0;    // the size of all growing dimensions, whatever their offset
};

struct GrowingShape {
  DType dtype = DType::kInvalid;  // of an array
  std::vector<int64_t> dims;      // at the bound
  // For each dimension: what is added to the length, or nothing where it is fixed.
  std::vector<std::optional<int64_t>> offsets;
  bool is_tuple = false;
  std::vector<GrowingShape> elements;

  size_t rank() const { return dims.size(); }
  bool grows() const;
  bool IsScalar() const { return !is_tuple && dims.empty(); }
};

// Of two encoded shapes that agree in all but sizes. UNIMPLEMENTED where a size is not equal or one larger in `longer`.
Result<GrowingShape> ReadGrowingShape(std::string_view shorter, std::string_view longer, const LengthBound& bound);

// `encoded` with the dimensions of `shape`; its layout stays.
Result<std::string> AtBound(std::string_view encoded, const GrowingShape& shape);

// Whether a row-major array of the one shape is one of the other, at every length: each growing dimension stays one,
// with as many elements before and behind it.
bool ReshapeKeepsGrowing(const GrowingShape& from, const GrowingShape& to);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_GROWING_SHAPE_H_
