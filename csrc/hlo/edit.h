// Rewriting a serialized HloModuleProto (openxla/xla, xla/service/hlo.proto): what a traced function's module lacks
// before it is compiled for a slice, and what a partitioned module must lose before it is compiled for one device.
//
// Threads: pure functions of bytes. Only the fields named here are changed; every other is carried over byte for byte.
// Bytes that are not a module give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_EDIT_H_
#define PTPATHWAYS_HLO_EDIT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace pathways::hlo {

// An encoded OpSharding. Empty bytes are a value: "replicated".
using ShardingBytes = std::optional<std::string>;

// Says how each parameter and each result of the entry computation is laid out over the partitions. `parameters` and
// `results` are as long as the module's, or empty for "leave them all". Nothing given for one: it keeps what the module
// says, which for a module that says nothing is replicated.
Result<std::string> AnnotateShardings(std::string_view module, std::span<const ShardingBytes> parameters,
                                      std::span<const ShardingBytes> results);

// Makes exactly these parameters the ones whose memory the program may take. A parameter that is aliased to a result
// stays so, and is not named twice.
Result<std::string> SetDonors(std::string_view module, std::span<const int64_t> parameters);

// Puts the number `partition` in place of every partition-id instruction, and 0 in place of every replica-id.
Result<std::string> FixPartition(std::string_view module, uint32_t partition);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_EDIT_H_
