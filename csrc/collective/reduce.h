// The arithmetic of reductions: one function for each element type and operation.
//
// Additions of bf16 and f16 are computed in f32 and rounded to the nearest even after each, as XLA's all-reduce on cpu
// does. min and max give NaN when either side is NaN. On pred, sum, max and or are the same, and so are product, min
// and and.
//
// Ownership: borrows all memory. Threads: pure functions.
#ifndef PTPATHWAYS_COLLECTIVE_REDUCE_H_
#define PTPATHWAYS_COLLECTIVE_REDUCE_H_

#include <cstddef>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/hlo/collective.h"

namespace pathways::collective {

// to[i] = a[i] op b[i] for `count` elements. `to` may be exactly `a` or exactly `b`, or else overlaps neither.
using ReduceFunction = void (*)(std::byte* to, const std::byte* a, const std::byte* b, size_t count);

// UNIMPLEMENTED, naming the two, for a combination that has no meaning (min of complex numbers) or no arithmetic here
// (f8).
Result<ReduceFunction> FindReduction(DType dtype, hlo::Reduction reduction);

std::string_view ReductionName(hlo::Reduction reduction);

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_REDUCE_H_
