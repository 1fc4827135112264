// The length of a module: one size that grows, such as that of a cache to which a loop appends.
//
// A front end that traces Python writes a loop whose arrays grow by one as a module for each length. What remains of a
// module without its sizes and numbers, its skeleton, tells which modules may differ in their length only. One module
// of bounded size, whose length and numbers are parameters, computes the same as each of them up to that bound: behind
// the length its arguments may hold anything, and so do its results.
//
// A size is taken for the length only where two modules of consecutive lengths show that it grows, and an array of that
// size only goes into instructions of which it is known that what lies behind the length reaches no result.
//
// Threads: pure functions of bytes. Bytes that are not a module give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_LENGTHS_H_
#define PTPATHWAYS_HLO_LENGTHS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/hlo/numbers.h"

namespace pathways::hlo {

struct ModuleSizes {
  // Equal for modules that differ in sizes, numbers, names, ids and source lines only. Not a module.
  std::string skeleton;
  // What the skeleton leaves out: dimensions of the program's shape, parameters first, then those of the entry's
  // instructions, with limits of slices, sizes of dynamic slices and gathers, and windows of reductions.
  std::vector<int64_t> sizes;
  std::vector<ModuleNumber> numbers;  // as ReadNumbers gives them
};

Result<ModuleSizes> ReadSizes(std::string_view module);

// A dimension of an array in a module of length n: its size is n + offset.
struct GrowingDimension {
  size_t dimension = 0;
  int64_t offset = 0;

  friend bool operator==(const GrowingDimension&, const GrowingDimension&) = default;
};

struct LengthModule {
  // Its parameters: those of the pair, whose growing dimensions all have the bound for their size, so that what it
  // takes and what it gives fit each other whatever their offsets; then the numbers at `open`; then the length, an s32
  // scalar, which is at least 1 and at most `longest`. Its results, at the bound too. The other numbers are those of
  // the pair, so a module of which they differ needs further positions.
  std::string module;
  std::vector<size_t> open;                     // positions of the numbers that are parameters, ascending
  std::vector<TensorType> parameters, results;  // at the bound; of the parameters, those of the pair only
  int64_t longest = 0;
  // For each of them; empty: all its dimensions are fixed.
  std::vector<std::vector<GrowingDimension>> growing_parameters, growing_results;
};

// Of two modules equal but for numbers, and for sizes that are one larger in `longer`. Their length is the first
// growing dimension of their first parameter that has one. The numbers at `open`, which ascend, become parameters as do
// those in which the two differ. UNIMPLEMENTED for other pairs, and for instructions not known to be computed rightly.
// INVALID_ARGUMENT for a bound below what a length of 1 needs.
Result<LengthModule> WithLengthAsParameter(std::string_view shorter, std::string_view longer, int64_t bound,
                                           std::span<const size_t> open = {});

// The length of a module of the same skeleton as the pair's: all its sizes that grow in the pair lie the same above
// those of `shorter`, and the others are equal. Nothing for other modules.
std::optional<int64_t> LengthOf(const ModuleSizes& shorter, const ModuleSizes& longer, const ModuleSizes& module);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_LENGTHS_H_
