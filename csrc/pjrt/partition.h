// What one shard of a partitioned computation does: the module after XLA's SPMD partitioning, before optimisation, as
// an ordinary program for one device in which whatever still concerns other devices stands as an explicit instruction.
//
// There is no call for that in the PJRT C API, so we compile and read what the compile wrote down (module_dump.h).
//
// Ownership: a Partitioner keeps no client between calls. Threads: any; each call has a client and a folder of its own.
#ifndef PTPATHWAYS_PJRT_PARTITION_H_
#define PTPATHWAYS_PJRT_PARTITION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/hlo/hlo.h"
#include "csrc/pjrt/client.h"

namespace pathways::pjrt {

struct ShardProgram {
  std::string module;  // HloModuleProto; parameters and results have the shapes of one shard
  hlo::HloModuleInfo info;
  // Distinct opcodes that meet other devices; partition-id and replica-id are not among them.
  std::vector<std::string> collectives;
  // Whether it has a partition-id instruction: then the shards' programs differ by that number (hlo::FixPartition).
  bool differs = false;
};

class Partitioner {
 public:
  // `scratch`: an existing folder for files that live as long as a call; empty: the system's temporary folder.
  Partitioner(std::shared_ptr<const Api> api, std::string scratch)
      : api_(std::move(api)), scratch_(std::move(scratch)) {}

  // `format` and `options` as in Client::Compile; the counts of replicas and partitions in `options` are replaced.
  // UNIMPLEMENTED when the plugin cannot make a client of that many devices or writes nothing down.
  Result<ShardProgram> Partition(std::string_view module, std::string_view format, std::string_view options,
                                 int64_t partitions) const;

 private:
  const std::shared_ptr<const Api> api_;
  const std::string scratch_;
};

// Sorts out what the module says about other devices. INVALID_ARGUMENT when it is not a module.
Result<ShardProgram> DescribeShardProgram(std::string module);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_PARTITION_H_
