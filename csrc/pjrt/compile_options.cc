#include "csrc/pjrt/compile_options.h"

#include <initializer_list>

#include "csrc/base/proto.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {
namespace {

namespace top = fields::CompileOptionsProto;
namespace build = fields::ExecutableBuildOptionsProto;

// DeviceAssignmentProto (xla_data.proto): a "computation" is a partition.
constexpr uint32_t kReplicaCount = 1;
constexpr uint32_t kComputationCount = 2;
constexpr uint32_t kComputationDevices = 3;
constexpr uint32_t kReplicaDeviceIds = 1;

constexpr int64_t kMaxDevices = int64_t{1} << 24;

Status Malformed(std::string_view what) {
  return InvalidArgument("expected " + std::string(what) + " in serialized compile options, got malformed bytes");
}

Result<DeviceAssignment> ReadDeviceAssignment(std::string_view bytes) {
  DeviceAssignment out;
  std::vector<std::vector<int64_t>> by_partition;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(kReplicaCount, WireType::kVarint)) out.replicas = field.as_int64();
    if (field.is(kComputationCount, WireType::kVarint)) out.partitions = field.as_int64();
    if (!field.is(kComputationDevices, WireType::kBytes)) continue;
    std::vector<int64_t>& ids = by_partition.emplace_back();
    ProtoReader devices(field.bytes);
    ProtoField id;
    while (devices.Next(&id)) {
      if (id.number != kReplicaDeviceIds) continue;
      if (!ForEachInt64(id, [&ids](int64_t value) { ids.push_back(value); })) return Malformed("device ids");
    }
    if (!devices.ok()) return Malformed("a device assignment");
  }
  if (!reader.ok()) return Malformed("a device assignment");
  // The counts must agree with the ids that are there, which also bounds them.
  bool agrees = out.replicas >= 1 && out.partitions == static_cast<int64_t>(by_partition.size());
  for (const auto& ids : by_partition) agrees = agrees && static_cast<int64_t>(ids.size()) == out.replicas;
  if (!agrees) return Malformed("a device assignment with an id for each replica and partition");
  for (int64_t replica = 0; replica < out.replicas; ++replica) {
    for (const auto& ids : by_partition) out.device_ids.push_back(ids[static_cast<size_t>(replica)]);
  }
  return out;
}

std::string WriteDeviceAssignment(int64_t replicas, int64_t partitions, std::span<const int64_t> device_ids) {
  ProtoWriter out;
  out.Int64(kReplicaCount, replicas);
  out.Int64(kComputationCount, partitions);
  for (int64_t partition = 0; partition < partitions; ++partition) {
    ProtoWriter devices;
    for (int64_t replica = 0; replica < replicas; ++replica) {
      devices.Int64(kReplicaDeviceIds, device_ids[static_cast<size_t>(replica * partitions + partition)]);
    }
    out.Bytes(kComputationDevices, devices.bytes());
  }
  return std::move(out).Take();
}

// A message without the fields to be replaced.
Status CopyWithout(std::string_view message, std::initializer_list<uint32_t> dropped, ProtoWriter* out) {
  return CopyFieldsExcept(message, dropped, out) ? OkStatus() : Malformed("a message");
}

// A field of a message type may come in several pieces, which merge: joining their bytes is that merge.
Result<std::string> BuildOptionsOf(std::string_view options) {
  std::string joined;
  ProtoReader reader(options);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(top::executable_build_options, WireType::kBytes)) joined.append(field.bytes);
  }
  if (!reader.ok()) return Malformed("CompileOptionsProto");
  return joined;
}

Result<std::string> Rewrite(std::string_view options, int64_t replicas, int64_t partitions, bool portable,
                            std::string_view device_assignment) {
  PW_ASSIGN_OR_RETURN(const std::string old_build, BuildOptionsOf(options));
  ProtoWriter new_build;
  PW_RETURN_IF_ERROR(
      CopyWithout(old_build, {build::num_replicas, build::num_partitions, build::device_assignment}, &new_build));
  new_build.Int64(build::num_replicas, replicas);
  new_build.Int64(build::num_partitions, partitions);
  if (partitions > 1) new_build.Bool(build::use_spmd_partitioning, true);  // the last one given counts
  if (!device_assignment.empty()) new_build.Bytes(build::device_assignment, device_assignment);
  ProtoWriter out;
  PW_RETURN_IF_ERROR(CopyWithout(options, {top::executable_build_options, top::compile_portable_executable}, &out));
  out.Bytes(top::executable_build_options, new_build.bytes());
  if (portable) out.Bool(top::compile_portable_executable, true);
  return std::move(out).Take();
}

}  // namespace

Result<CompileOptionsInfo> ReadCompileOptions(std::string_view options) {
  CompileOptionsInfo out;
  ProtoReader reader(options);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(top::compile_portable_executable, WireType::kVarint)) {
      out.compile_portable_executable = field.as_bool();
    }
  }
  PW_ASSIGN_OR_RETURN(const std::string build_options, BuildOptionsOf(options));
  std::string assignment;
  ProtoReader build_reader(build_options);
  while (build_reader.Next(&field)) {
    if (field.is(build::device_assignment, WireType::kBytes)) assignment.append(field.bytes);
    if (field.type != WireType::kVarint) continue;
    if (field.number == build::num_replicas) out.num_replicas = field.as_int64();
    if (field.number == build::num_partitions) out.num_partitions = field.as_int64();
    if (field.number == build::use_spmd_partitioning) out.use_spmd_partitioning = field.as_bool();
    if (field.number == build::use_shardy_partitioner) out.use_shardy_partitioner = field.as_bool();
  }
  if (!build_reader.ok()) return Malformed("ExecutableBuildOptionsProto");
  // Zero is proto3's "not set", which means one.
  if (out.num_replicas == 0) out.num_replicas = 1;
  if (out.num_partitions == 0) out.num_partitions = 1;
  if (out.num_replicas < 0 || out.num_replicas > kMaxDevices || out.num_partitions < 0 ||
      out.num_partitions > kMaxDevices) {
    return InvalidArgument("expected counts of replicas and partitions up to " + std::to_string(kMaxDevices) +
                           ", got " + std::to_string(out.num_replicas) + " and " + std::to_string(out.num_partitions));
  }
  if (!assignment.empty()) {
    PW_ASSIGN_OR_RETURN(out.device_assignment, ReadDeviceAssignment(assignment));
  }
  return out;
}

Result<std::string> ForOneDevice(std::string_view options) { return Rewrite(options, 1, 1, true, {}); }

Result<std::string> ForOneShard(std::string_view options) {
  PW_ASSIGN_OR_RETURN(const std::string old_build, BuildOptionsOf(options));
  ProtoWriter out, new_build;
  PW_RETURN_IF_ERROR(CopyWithout(old_build,
                                 {build::result_layout, build::use_spmd_partitioning, build::use_auto_spmd_partitioning,
                                  build::use_shardy_partitioner, build::allow_spmd_sharding_propagation_to_parameters,
                                  build::allow_spmd_sharding_propagation_to_output,
                                  build::auto_spmd_partitioning_mesh_shape, build::auto_spmd_partitioning_mesh_ids},
                                 &new_build));
  PW_RETURN_IF_ERROR(CopyWithout(options, {top::argument_layouts, top::executable_build_options}, &out));
  out.Bytes(top::executable_build_options, new_build.bytes());
  return ForOneDevice(out.bytes());
}

Result<std::string> WithFreeResults(std::string_view options, const std::vector<bool>& free) {
  PW_ASSIGN_OR_RETURN(const std::string old_build, BuildOptionsOf(options));
  ProtoWriter out, new_build;
  PW_RETURN_IF_ERROR(CopyWithout(old_build, {build::allow_spmd_sharding_propagation_to_output}, &new_build));
  for (const bool each : free) new_build.Bool(build::allow_spmd_sharding_propagation_to_output, each);
  PW_RETURN_IF_ERROR(CopyWithout(options, {top::executable_build_options}, &out));
  out.Bytes(top::executable_build_options, new_build.bytes());
  return std::move(out).Take();
}

Result<std::string> ForDevices(std::string_view options, int64_t replicas, int64_t partitions,
                               std::span<const int64_t> device_ids) {
  if (replicas < 1 || partitions < 1 || replicas > kMaxDevices || partitions > kMaxDevices ||
      static_cast<int64_t>(device_ids.size()) != replicas * partitions) {
    return InvalidArgument("expected one device id for each of " + std::to_string(replicas) + " replicas x " +
                           std::to_string(partitions) + " partitions, got " + std::to_string(device_ids.size()));
  }
  return Rewrite(options, replicas, partitions, false, WriteDeviceAssignment(replicas, partitions, device_ids));
}

}  // namespace pathways::pjrt
