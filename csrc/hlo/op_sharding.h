// Tilings as XLA writes them: serialized OpSharding (openxla/xla, xla/xla_data.proto).
//
// Threads: pure functions of bytes.
#ifndef PTPATHWAYS_HLO_OP_SHARDING_H_
#define PTPATHWAYS_HLO_OP_SHARDING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tiling.h"

namespace pathways::hlo {

// Empty bytes for a copy on each device, which is what they mean in OpSharding.
std::string EncodeOpSharding(const Tiling& tiling);

// The sharding of one array of that rank over so many partitions. UNIMPLEMENTED: one that is no tiling of the whole
// array (of a single device, manual, unreduced).
Result<Tiling> DecodeOpSharding(std::string_view bytes, size_t rank, size_t partitions);

// Of a tuple's elements, or of the one array; `ranks` by element. No bytes: every element is replicated.
Result<std::vector<Tiling>> DecodeOpShardings(std::string_view bytes, const std::vector<size_t>& ranks,
                                              size_t partitions);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_OP_SHARDING_H_
