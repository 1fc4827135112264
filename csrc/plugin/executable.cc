// Programs: what can be asked of them. Compiling is in compile.cc, executing in execute.cc.
#include "csrc/plugin/executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/plugin/buffer.h"
#include "csrc/plugin/entry.h"

struct PJRT_SerializedDeviceAssignment {
  std::string bytes;
};
struct PJRT_SerializedCompileOptions {
  std::string bytes;
};
struct PJRT_ExecuteContext {};

namespace pathways::plugin {
namespace {

// A worker answers once the program is compiled, which may take minutes.
constexpr std::chrono::milliseconds kCompileTimeout{1'800'000};

// The module itself in the form callers want: HloModuleProtoWithConfig of openxla/xla (1 hlo_module, 2 config), with a
// config (HloModuleConfigProto) of 1 entry_computation_layout, 4 replica_count, 5 num_partitions.
std::string WithConfig(std::string_view module, int64_t replicas, int64_t partitions) {
  ProtoWriter config;
  ProtoReader reader(module);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(4, WireType::kBytes)) config.Bytes(1, field.bytes);  // HloModuleProto.host_program_shape
  }
  config.Int64(4, replicas);
  config.Int64(5, partitions);
  ProtoWriter proto;
  proto.Bytes(1, module);
  proto.Bytes(2, config.bytes());
  return std::move(proto).Take();
}

}  // namespace

std::string Program::What() const {
  return "function '" + spec.name + "'" + (spec.source.empty() ? "" : " (" + spec.source + ")");
}

Result<std::vector<std::shared_ptr<Value>>> ScalarArguments::On(const std::shared_ptr<ClientState>& client,
                                                                PJRT_Device* device, const DeviceListPtr& on) const {
  if (numbers_.empty()) return std::vector<std::shared_ptr<Value>>();
  const std::shared_ptr<client::Session> session = client->session();
  const auto fits = [&](const std::shared_ptr<Value>& value) {
    return value->device() == device && value->shard().ok() && value->shard()->buffer->session() == session &&
           (value->device_list() == on || value->devices() == *on);
  };
  {
    std::lock_guard lock(mutex_);
    if (!uploaded_.empty() && fits(uploaded_.front())) return uploaded_;
  }
  std::vector<std::shared_ptr<Value>> fresh;
  for (const hlo::ModuleNumber& number : numbers_) {
    const TensorType type{number.dtype, {}};
    PW_ASSIGN_OR_RETURN(std::shared_ptr<Value> value,
                        UploadValue(client, device, type, &number.bits, UploadTiling(type, on->size())));
    fresh.push_back(std::move(value));
  }
  std::lock_guard lock(mutex_);
  uploaded_ = fresh;
  return fresh;
}

Result<client::QueryAnswer> Program::AskOfCompiled(wire::QueryKind kind) const {
  const std::shared_ptr<client::Session> session = client->session();
  {
    std::unique_lock lock(mutex);
    if (!for_slices.empty() && for_slices.front()->function->session() == session) {
      const std::shared_ptr<const SliceProgram> sliced = for_slices.front();
      lock.unlock();
      return session->queries().Ask(kind, sliced->function, sliced->devices->front(), kCompileTimeout);
    }
    if (registered == nullptr || registered->session() != session) {
      return FailedPrecondition(What() + " has not run in this cluster");
    }
  }
  return Ask(kind);
}

Result<client::QueryAnswer> Program::Ask(wire::QueryKind kind) const {
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr bound,
                      (devices.empty() ? client->devices().all()[0] : devices[0])->Bound());
  const uint32_t device = bound->front();
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<client::Function> registered, Registered());
  return registered->session()->queries().Ask(kind, registered, device, kCompileTimeout);
}

Result<const client::QueryAnswer*> Program::Optimized() const {
  {
    std::lock_guard lock(mutex);
    if (optimized) return &*optimized;
  }
  client::QueryAnswer answer;
  if (spec.format == "hlo" && partitions == 1) {
    answer.format = "hlo_with_config";
    answer.payload = WithConfig(CallersModule(), replicas, partitions);
  } else {
    PW_ASSIGN_OR_RETURN(answer, Ask(wire::QueryKind::kOptimizedProgram));
    if (answer.format == "hlo") {
      answer.payload = WithConfig(answer.payload, replicas, partitions);
      answer.format = "hlo_with_config";
    }
  }
  std::lock_guard lock(mutex);
  if (!optimized) optimized = std::move(answer);
  return &*optimized;
}

Status Executable_Destroy(PJRT_Executable_Destroy_Args* args) {
  delete args->executable;
  return OkStatus();
}

Status Executable_Name(PJRT_Executable_Name_Args* args) {
  args->executable_name = args->executable->program->name().c_str();
  args->executable_name_size = args->executable->program->name().size();
  return OkStatus();
}

Status Executable_NumReplicas(PJRT_Executable_NumReplicas_Args* args) {
  args->num_replicas = static_cast<size_t>(args->executable->program->replicas);
  return OkStatus();
}

Status Executable_NumPartitions(PJRT_Executable_NumPartitions_Args* args) {
  args->num_partitions = static_cast<size_t>(args->executable->program->partitions);
  return OkStatus();
}

Status Executable_NumOutputs(PJRT_Executable_NumOutputs_Args* args) {
  args->num_outputs = args->executable->program->results.size();
  return OkStatus();
}

Status Executable_SizeOfGeneratedCodeInBytes(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args* args) {
  args->size_in_bytes = -1;  // unknown; GetCompiledMemoryStats asks the worker
  return OkStatus();
}

Status Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args* args) {
  const Program& program = *args->executable->program;
  std::unique_lock lock(program.mutex);
  if (program.costs == nullptr) {
    lock.unlock();
    PW_ASSIGN_OR_RETURN(client::QueryAnswer answer, program.Ask(wire::QueryKind::kCostAnalysis));
    auto costs = std::make_unique<NamedValueList>();
    for (wire::Property& property : answer.properties) {
      if (property.kind == 0) {
        costs->Add(std::move(property.name), std::move(property.text));
      } else if (property.kind == 1) {
        costs->Add(std::move(property.name), property.integer);
      } else {
        costs->Add(std::move(property.name), static_cast<float>(property.real));
      }
    }
    lock.lock();
    if (program.costs == nullptr) program.costs = std::move(costs);
  }
  args->properties = program.costs->data();
  args->num_properties = program.costs->size();
  return OkStatus();
}

Status Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args* args) {
  args->num_outputs = args->executable->program->results.size();
  args->memory_kinds = args->executable->program->result_memory_kinds.data();
  args->memory_kind_sizes = args->executable->program->result_memory_kind_sizes.data();
  return OkStatus();
}

Status Executable_ParameterMemoryKinds(PJRT_Executable_ParameterMemoryKinds_Args* args) {
  const Program& program = *args->executable->program;
  if (!program.parameters) return Unimplemented("the parameters of an MLIR program are not known to the client");
  args->num_parameters = program.parameters->size();
  args->memory_kinds = program.parameter_memory_kinds.data();
  args->memory_kind_sizes = program.parameter_memory_kind_sizes.data();
  return OkStatus();
}

Status Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args* args) {
  PJRT_Program* const out = args->program;
  if (out == nullptr || !Has(out, &PJRT_Program::format_size)) {
    return InvalidArgument("PJRT_Executable_OptimizedProgram: the program to fill is null or too short");
  }
  PW_ASSIGN_OR_RETURN(const client::QueryAnswer* answer, args->executable->program->Optimized());
  out->format = answer->format.c_str();
  out->format_size = answer->format.size();
  if (out->code == nullptr) {  // asks how much room it needs
    out->code_size = answer->payload.size();
    return OkStatus();
  }
  if (out->code_size < answer->payload.size()) {
    return InvalidArgument("the program needs room for " + std::to_string(answer->payload.size()) + " bytes, got " +
                           std::to_string(out->code_size));
  }
  std::memcpy(out->code, answer->payload.data(), answer->payload.size());
  out->code_size = answer->payload.size();
  return OkStatus();
}

Status Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args* args) {
  const Program& program = *args->executable->program;
  args->output_types = const_cast<PJRT_Buffer_Type*>(program.result_types.data());
  args->num_output_types = program.result_types.size();
  return OkStatus();
}

Status Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args* args) {
  const Program& program = *args->executable->program;
  args->num_outputs = program.results.size();
  args->dims = program.result_dims.data();
  args->dim_sizes = program.result_ranks.data();
  return OkStatus();
}

Status Executable_Fingerprint(PJRT_Executable_Fingerprint_Args* args) {
  args->executable_fingerprint = args->executable->program->fingerprint.c_str();
  args->executable_fingerprint_size = args->executable->program->fingerprint.size();
  return OkStatus();
}

Status Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  using Args = PJRT_Executable_GetCompiledMemoryStats_Args;
  // PyTorch/XLA asks this, for its log, of each program before it runs: nothing is compiled for the answer.
  PW_ASSIGN_OR_RETURN(const client::QueryAnswer answer,
                      args->executable->program->AskOfCompiled(wire::QueryKind::kCompiledMemory));
  const size_t from = offsetof(Args, generated_code_size_in_bytes);
  const size_t end = std::min(args->struct_size, sizeof(Args));
  std::memset(reinterpret_cast<char*>(args) + from, 0, end - from);
  for (const wire::Property& property : answer.properties) {
    if (property.name == "generated_code") args->generated_code_size_in_bytes = property.integer;
    if (property.name == "arguments") args->argument_size_in_bytes = property.integer;
    if (property.name == "outputs") args->output_size_in_bytes = property.integer;
    if (property.name == "aliased") args->alias_size_in_bytes = property.integer;
    if (property.name == "temporary") args->temp_size_in_bytes = property.integer;
    if (property.name == "peak" && Has(args, &Args::peak_memory_in_bytes)) {
      args->peak_memory_in_bytes = property.integer;
    }
  }
  return OkStatus();
}

Status Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args* args) {
  args->serialized_compile_options = new PJRT_SerializedCompileOptions{args->executable->program->options};
  args->serialized_bytes = args->serialized_compile_options->bytes.data();
  args->serialized_bytes_size = args->serialized_compile_options->bytes.size();
  args->serialized_compile_options_deleter = [](PJRT_SerializedCompileOptions* options) { delete options; };
  return OkStatus();
}

Status LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args* args) {
  delete args->executable;
  return OkStatus();
}

Status LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
  args->executable = new PJRT_Executable{args->loaded_executable->program};
  return OkStatus();
}

Status LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args* args) {
  args->addressable_devices = args->executable->program->devices.data();
  args->num_addressable_devices = args->executable->program->devices.size();
  return OkStatus();
}

Status LoadedExecutable_AddressableDeviceLogicalIds(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args* args) {
  const Program& program = *args->executable->program;
  args->addressable_device_logical_ids = const_cast<PJRT_LogicalDeviceIds*>(program.logical_ids.data());
  args->num_addressable_device_logical_ids = program.logical_ids.size();
  return OkStatus();
}

Status LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args* args) {
  args->executable->deleted = true;  // the function goes when the last handle does
  return OkStatus();
}

Status LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args* args) {
  args->is_deleted = args->executable->deleted;
  return OkStatus();
}

Status LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args* args) {
  args->executable_fingerprint = args->executable->program->fingerprint.c_str();
  args->executable_fingerprint_size = args->executable->program->fingerprint.size();
  return OkStatus();
}

Status LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args* args) {
  const Program& program = *args->executable->program;
  // DeviceAssignmentProto of openxla/xla: 1 replica_count, 2 computation_count, 3 computation_devices, one per
  // partition: 1 replica_device_ids. Nothing at all for a portable program.
  ProtoWriter proto;
  if (!program.devices.empty()) {
    proto.Int64(1, program.replicas);
    proto.Int64(2, program.partitions);
    for (int64_t partition = 0; partition < program.partitions; ++partition) {
      ProtoWriter ids;
      for (int64_t replica = 0; replica < program.replicas; ++replica) {
        ids.Int64(1, program.devices[static_cast<size_t>(replica * program.partitions + partition)]->description.id);
      }
      proto.Bytes(3, ids.bytes());
    }
  }
  args->serialized_device_assignment = new PJRT_SerializedDeviceAssignment{std::move(proto).Take()};
  args->serialized_bytes = args->serialized_device_assignment->bytes.data();
  args->serialized_bytes_size = args->serialized_device_assignment->bytes.size();
  args->serialized_device_assignment_deleter = [](PJRT_SerializedDeviceAssignment* assignment) { delete assignment; };
  return OkStatus();
}

Status ExecuteContext_Create(PJRT_ExecuteContext_Create_Args* args) {
  args->context = new PJRT_ExecuteContext;
  return OkStatus();
}

Status ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args* args) {
  delete args->context;
  return OkStatus();
}

}  // namespace pathways::plugin
