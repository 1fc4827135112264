// The numbers of a module: its scalar constants, where its slices start, and where a pad puts its operand.
//
// A front end that traces Python writes `row[step] = x` as a module with `step` in it, so each step would be compiled.
// What remains of a module without its numbers, its skeleton, tells which modules differ in numbers only; one module
// that takes those numbers as parameters computes the same as each of them.
//
// A number is taken only from the entry computation, and only where XLA treats a constant and a parameter alike up to
// rounding: it goes into elementwise operations, indices and results. Exponents, divisors of floating-point numbers,
// initial values of reductions and whatever goes into loops, calls and collectives belong to the skeleton.
//
// Threads: pure functions of bytes. Bytes that are not a module give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_NUMBERS_H_
#define PTPATHWAYS_HLO_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways::hlo {

struct ModuleNumber {
  DType dtype = DType::kInvalid;
  uint64_t bits = 0;  // little-endian, in the first bytes

  friend bool operator==(const ModuleNumber&, const ModuleNumber&) = default;
};

struct ModuleNumbers {
  // Equal for modules that differ in numbers, names, ids and source lines only. Not a module.
  std::string skeleton;
  std::vector<ModuleNumber> numbers;  // in the order of the entry's instructions
};

Result<ModuleNumbers> ReadNumbers(std::string_view module);

// Which numbers are left out. Divisors of floating-point numbers are usually none: XLA multiplies by the reciprocal of
// a constant, and so computes something else, by one rounding.
enum class Openness { kAlike, kDivisorsToo };

// With a skeleton that leaves out divisors and sizes too (skeleton.h), which go to `sizes`.
Result<ModuleNumbers> ReadNumbersAndSizes(std::string_view module, std::vector<int64_t>* sizes);

// The module with the numbers at `positions`, which ascend, as further parameters behind its own, in that order. A
// slice whose start is such a parameter becomes a dynamic slice, and a pad a dynamic update.
Result<std::string> WithNumbersAsParameters(std::string_view module, std::span<const size_t> positions,
                                            Openness openness = Openness::kAlike);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_NUMBERS_H_
