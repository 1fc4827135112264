#include "csrc/pjrt/partition.h"

#include <optional>
#include <utility>

#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/module_dump.h"

namespace pathways::pjrt {

Result<ShardProgram> DescribeShardProgram(std::string module) {
  ShardProgram out;
  PW_ASSIGN_OR_RETURN(out.info, hlo::ReadHloModule(module));
  for (const std::string& opcode : out.info.cross_device_opcodes) {
    if (opcode == "partition-id") {
      out.differs = true;
    } else if (opcode != "replica-id") {
      out.collectives.push_back(opcode);
    }
  }
  out.module = std::move(module);
  return out;
}

Result<ShardProgram> Partitioner::Partition(std::string_view module, std::string_view format, std::string_view options,
                                            int64_t partitions) const {
  PW_ASSIGN_OR_RETURN(const auto client, Client::Create(api_, {{"cpu_device_count", partitions}}));
  if (static_cast<int64_t>(client->devices().size()) < partitions) {
    return Unimplemented("expected a client with " + std::to_string(partitions) + " devices of " + api_->origin() +
                         " to partition for, got " + std::to_string(client->devices().size()));
  }
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < partitions; ++i) ids.push_back(client->devices()[static_cast<size_t>(i)].id);
  PW_ASSIGN_OR_RETURN(const std::string for_devices, ForDevices(options, 1, partitions, ids));
  PW_ASSIGN_OR_RETURN(std::optional<std::string> partitioned,
                      CompileAndDump(client.get(), module, format, for_devices, Stage::kPartitioned, scratch_));
  if (!partitioned) return Unimplemented("the plugin does not write down the module after SPMD partitioning");
  return DescribeShardProgram(*std::move(partitioned));
}

}  // namespace pathways::pjrt
