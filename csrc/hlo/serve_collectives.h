// Makes one shard's program (see pjrt/partition.h) one that a single device can run although it meets others: its
// collective instructions become custom calls which this process serves (pjrt/collective_calls.h), and what tells a
// shard which one it is becomes an argument.
//
// Threads: pure functions of bytes. Bytes that are not a module give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_SERVE_COLLECTIVES_H_
#define PTPATHWAYS_HLO_SERVE_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace pathways::hlo {

struct ServedModule {
  // Has one parameter more than before, the last: u32[], the number of the shard. It is there also when nothing reads
  // it, because a launch may be held back by giving it late.
  std::string module;
  size_t collectives = 0;
  // A partition-id stands in a computation that the argument does not reach, or there is a replica-id: then
  // FixPartition must come after this.
  bool differs_inside = false;
};

// `shards`: of the whole computation; it has one replica. The collectives of each computation are chained, each taking
// a value that the one before it gives, so that every shard meets them in the order of the module.
// UNIMPLEMENTED, naming it, for an instruction that meets other devices in a way not known here.
Result<ServedModule> ServeCollectives(std::string_view module, uint32_t shards);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_SERVE_COLLECTIVES_H_
