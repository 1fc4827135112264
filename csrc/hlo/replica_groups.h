// Which devices a collective instruction of a serialized HloModuleProto names, in each form that XLA writes them in.
//
// Threads: pure functions.
#ifndef PTPATHWAYS_HLO_REPLICA_GROUPS_H_
#define PTPATHWAYS_HLO_REPLICA_GROUPS_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::hlo {

using ReplicaGroups = std::vector<std::vector<uint32_t>>;

// What the instruction's fields say. Whether the ids are those of replicas, of partitions or of devices depends on
// `has_channel`, `global_ids` and the opcode.
struct CollectiveFields {
  ReplicaGroups groups;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // of a permutation: from, to
  std::vector<int64_t> dimensions, operands, called;
  bool has_channel = false, global_ids = false;
};

// INVALID_ARGUMENT for an id that is not below `devices`.
Result<CollectiveFields> ReadCollectiveFields(std::string_view instruction, uint32_t devices);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_REPLICA_GROUPS_H_
