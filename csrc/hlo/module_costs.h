// What one run of a module computes and sends.
//
// Ownership: plain values. Threads: pure functions of bytes; what is not a module gives INVALID_ARGUMENT.
//
// All computations of a module are looked at once: the body of a loop counts once, however often the loop runs it.
#ifndef PTPATHWAYS_HLO_MODULE_COSTS_H_
#define PTPATHWAYS_HLO_MODULE_COSTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/hlo/replica_groups.h"

namespace pathways::hlo {

struct CollectiveUse {
  std::string opcode;    // "all-reduce"; of an asynchronous one without "-start"
  int64_t bytes = 0;     // the larger of one device's operands and results
  ReplicaGroups groups;  // of a permutation its sources and targets as pairs; empty: all devices
};

// In the module's order. `devices`: how many the module was compiled for.
Result<std::vector<CollectiveUse>> ListCollectives(std::string_view module, uint32_t devices);

// Floating-point operations of products and convolutions, which are nearly all of a model's, by element type of the
// result. A convolution's count includes what falls into its padding.
Result<std::map<DType, int64_t>> CountFlops(std::string_view module);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_MODULE_COSTS_H_
