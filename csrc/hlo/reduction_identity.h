// What may be added to the elements of a reduction without a change of its result.
//
// Threads: pure functions of bytes. Malformed bytes give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_REDUCTION_IDENTITY_H_
#define PTPATHWAYS_HLO_REDUCTION_IDENTITY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways::hlo {

// Of a computation that is one operation on its two scalar parameters, or the logical and, or the or, of whether they
// are not zero; nothing for others.
Result<std::optional<uint64_t>> IdentityOf(std::string_view computation, DType dtype);

// Whether the computation on two times `count` scalars, of which the first half is what is reduced so far, selects:
// each of its results is one of the two parameters in its place. What it starts with may then be added once more. (A
// comparison that does not expect a NaN depends on the order of elements, with and without such additions.)
Result<bool> Selects(std::string_view computation, size_t count);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_REDUCTION_IDENTITY_H_
