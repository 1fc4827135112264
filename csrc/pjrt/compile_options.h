// Reading and rewriting serialized CompileOptionsProto (openxla/xla, xla/pjrt/proto/compile_options.proto).
//
// Threads: pure functions of bytes.
//
// Only the fields named here are understood; every other field, known or not, is carried over byte for byte. Bytes that
// are not a well-formed message give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_PJRT_COMPILE_OPTIONS_H_
#define PTPATHWAYS_PJRT_COMPILE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::pjrt {

// [replica][partition] -> plugin-wide device id.
struct DeviceAssignment {
  int64_t replicas = 0;
  int64_t partitions = 0;
  std::vector<int64_t> device_ids;  // replica-major: device_ids[replica * partitions + partition]

  int64_t at(int64_t replica, int64_t partition) const {
    return device_ids[static_cast<size_t>(replica * partitions + partition)];
  }
  friend bool operator==(const DeviceAssignment&, const DeviceAssignment&) = default;
};

struct CompileOptionsInfo {
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
  bool use_spmd_partitioning = false;
  bool use_shardy_partitioner = false;
  bool compile_portable_executable = false;
  std::optional<DeviceAssignment> device_assignment;
};

Result<CompileOptionsInfo> ReadCompileOptions(std::string_view options);

// The same options for one device, run anywhere: one replica, one partition, no device assignment, portable.
Result<std::string> ForOneDevice(std::string_view options);

// ForOneDevice for the program of one shard (see Partitioner): layouts of whole arguments and results, and whatever
// steers partitioning, are gone.
Result<std::string> ForOneShard(std::string_view options);

// The same options, with XLA deciding how those results lie over the partitions that `free` names by position, out of
// as many as `free` is long; the others lie as the module's root says.
Result<std::string> WithFreeResults(std::string_view options, const std::vector<bool>& free);

// The same options for `replicas` x `partitions` devices named by plugin-wide id, replica-major; not portable.
// SPMD partitioning is switched on when there is more than one partition.
Result<std::string> ForDevices(std::string_view options, int64_t replicas, int64_t partitions,
                               std::span<const int64_t> device_ids);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_COMPILE_OPTIONS_H_
