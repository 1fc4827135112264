// An array as an instruction's shape says it, and how dimensions that an instruction names lie in memory.
//
// Threads: pure functions; results own what they hold.
#ifndef PTPATHWAYS_HLO_LAID_OUT_SHAPE_H_
#define PTPATHWAYS_HLO_LAID_OUT_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::hlo {

// Sizes, and dimensions from the slowest to the fastest in memory.
struct LaidOutShape {
  int64_t element_type = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> order;
};

// UNIMPLEMENTED for a tuple, a dynamic shape or a tiled layout.
Result<LaidOutShape> ReadLaidOutShape(std::string_view bytes);

std::string EncodeShape(const LaidOutShape& shape);

// Elements from one index to the next along each dimension, by dimension.
std::vector<int64_t> StridesOf(const LaidOutShape& shape);

// Whether these are the numbers from 0 to rank - 1, each once.
bool IsPermutation(std::vector<int64_t> order, size_t rank);

// How an array of `shape`, whose order is of no meaning, has to lie so that the other one is the same memory:
// the result of a transpose by `permutation` of an operand that lies as `operand` says;
std::vector<int64_t> OrderOfTransposed(const std::vector<int64_t>& operand, const std::vector<int64_t>& permutation);
// the result, of sizes `to`, of a reshape of `operand`. Nothing where no order does.
std::optional<std::vector<int64_t>> OrderOfReshaped(const LaidOutShape& operand, const std::vector<int64_t>& to);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_LAID_OUT_SHAPE_H_
