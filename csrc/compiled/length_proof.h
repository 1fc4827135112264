// LengthProof: arguments by which a computation for all lengths is compared with one of a fixed length, and the
// comparison.
//
// Ownership: plain value. Threads: none inside.
#ifndef PTPATHWAYS_COMPILED_LENGTH_PROOF_H_
#define PTPATHWAYS_COMPILED_LENGTH_PROOF_H_

#include <random>
#include <string>
#include <string_view>

#include "csrc/base/tensor_type.h"

namespace pathways::compiled {

class LengthProof {
 public:
  // Contents of an array, the same in each process: numbers of -1 to 1, integers 0 and 1, which are good indices.
  std::string Contents(const TensorType& type);
  // Those of an array of type `larger` that begins like `contents`, with NaNs or large numbers elsewhere.
  static std::string WithGarbage(const TensorType& type, std::string_view contents, const TensorType& larger);
  // Whether an array `got`, which may be larger, begins like `right`, up to rounding.
  static bool Agree(const TensorType& right_type, std::string_view right, const TensorType& got_type,
                    std::string_view got);

 private:
  std::mt19937 random_{5489};
};

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_LENGTH_PROOF_H_
