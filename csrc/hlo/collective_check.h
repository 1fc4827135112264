// Whether the collectives of a module stay among the devices that it runs on. XLA drops groups and pairs that name
// others, or that name replicas where there is only one, and computes something else without an error.
//
// Threads: pure functions of bytes.
#ifndef PTPATHWAYS_HLO_COLLECTIVE_CHECK_H_
#define PTPATHWAYS_HLO_COLLECTIVE_CHECK_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace pathways::hlo {

// `module`: a serialized HloModuleProto. INVALID_ARGUMENT, naming the instruction, if it names a replica, partition or
// device that is not among `replicas` x `partitions`. What has a form newer than this version knows passes.
Status CheckCollectives(std::string_view module, int64_t replicas, int64_t partitions);

// Whether an MLIR module, as text or bytecode, can have collectives or ask which device it runs on. Both spell out the
// names of operations, so false is certain.
bool MlirMayMeetDevices(std::string_view module);

// INVALID_ARGUMENT if the text says that the module was made for other numbers of replicas or partitions. Bytecode
// does not say so in a way that can be read here, and passes.
Status CheckMlirCounts(std::string_view module, int64_t replicas, int64_t partitions);

// XLA's partitioner ends the process at an all-reduce of several operands: this module has one for each operand
// instead. Most modules are returned as they are.
Result<std::string> SplitAllReduces(std::string_view module);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_COLLECTIVE_CHECK_H_
