// What a simulated device needs of a StableHLO module in text form: the types of its main function.
//
// Threads: a pure function of text. Any text is safe to give.
#ifndef PTPATHWAYS_SIM_MLIR_TEXT_H_
#define PTPATHWAYS_SIM_MLIR_TEXT_H_

#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways::sim {

struct MlirSignature {
  std::vector<TensorType> parameters;
  std::vector<TensorType> results;
  bool collective = false;  // names an operation among devices
};

// INVALID_ARGUMENT when there is no function @main with tensors of static shape; UNIMPLEMENTED for bytecode.
Result<MlirSignature> ReadMlirText(std::string_view module);

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_MLIR_TEXT_H_
