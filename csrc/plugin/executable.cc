// Programs: making them, and what can be asked of them. Executing is in execute.cc.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/compiled/installed.h"
#include "csrc/plugin/entry.h"
#include "csrc/plugin/handles.h"

struct PJRT_SerializedExecutable {
  std::string bytes;
};
struct PJRT_SerializedDeviceAssignment {
  std::string bytes;
};
struct PJRT_SerializedCompileOptions {
  std::string bytes;
};
struct PJRT_ExecuteContext {};

namespace pathways::plugin {
namespace {

Status CheckProgram(const PJRT_Program* program) {
  if (program == nullptr) return InvalidArgument("PJRT_Client_Compile: the program is null");
  if (!Has(program, &PJRT_Program::format_size)) {
    return InvalidArgument("PJRT_Client_Compile: expected a PJRT_Program of at least " +
                           std::to_string(EndOf(program, &PJRT_Program::format_size)) + " bytes, got " +
                           std::to_string(program->struct_size));
  }
  if (program->code == nullptr || program->format == nullptr) {
    return InvalidArgument("PJRT_Client_Compile: the program's code or format is null");
  }
  return OkStatus();
}

// Serialized programs are what it takes to compile them again: workers have their own caches of executables.
// 1 format, 2 module, 3 options, 4 a mark.
constexpr char kSerializedMark[] = "ptpathways program 1";

}  // namespace

Status Client_Compile(PJRT_Client_Compile_Args* args) {
  PW_RETURN_IF_ERROR(CheckProgram(args->program));
  PW_ASSIGN_OR_RETURN(
      std::shared_ptr<compiled::Program> program,
      args->client->compiler->Compile(
          {args->program->code, args->program->code_size}, {args->program->format, args->program->format_size},
          args->compile_options == nullptr ? std::string_view()
                                           : std::string_view(args->compile_options, args->compile_options_size)));
  if (program->is_new) {
    compiled::NoteCompile({args->program->code, args->program->code_size},
                          {args->program->format, args->program->format_size}, program->spec.source,
                          program->numbers.numbers().size() + program->length.numbers().size());
  }
  args->executable = new PJRT_LoadedExecutable{std::move(program)};
  return OkStatus();
}

Status Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args* args) {
  using Args = PJRT_Executable_DeserializeAndLoad_Args;
  if (args->serialized_executable == nullptr) return InvalidArgument("the serialized program is null");
  std::string_view format, module, options, mark;
  ProtoReader reader({args->serialized_executable, args->serialized_executable_size});
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) format = field.bytes;
    if (field.is(2, WireType::kBytes)) module = field.bytes;
    if (field.is(3, WireType::kBytes)) options = field.bytes;
    if (field.is(4, WireType::kBytes)) mark = field.bytes;
  }
  if (!reader.ok() || mark != kSerializedMark) {
    return InvalidArgument("expected a program serialized by this version of ptpathways, got " +
                           std::to_string(args->serialized_executable_size) + " other bytes; compile it again");
  }
  if (Has(args, &Args::overridden_serialized_compile_options_size) &&
      args->overridden_serialized_compile_options != nullptr) {
    options = {args->overridden_serialized_compile_options, args->overridden_serialized_compile_options_size};
  }
  PW_ASSIGN_OR_RETURN(std::shared_ptr<compiled::Program> program,
                      args->client->compiler->Compile(module, format, options));
  args->loaded_executable = new PJRT_LoadedExecutable{std::move(program)};
  return OkStatus();
}

Status Executable_Serialize(PJRT_Executable_Serialize_Args* args) {
  const compiled::Program& program = *args->executable->program;
  ProtoWriter proto;
  proto.Bytes(1, program.spec.format);
  proto.Bytes(2, program.CallersModule());
  proto.Bytes(3, program.options);
  proto.Bytes(4, kSerializedMark);
  args->serialized_executable = new PJRT_SerializedExecutable{std::move(proto).Take()};
  args->serialized_bytes = args->serialized_executable->bytes.data();
  args->serialized_bytes_size = args->serialized_executable->bytes.size();
  args->serialized_executable_deleter = [](PJRT_SerializedExecutable* executable) { delete executable; };
  return OkStatus();
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
  const compiled::Program& program = *args->executable->program;
  UniqueLock lock(program.mutex);
  if (program.costs == nullptr) {
    lock.unlock();
    PW_ASSIGN_OR_RETURN(client::QueryAnswer answer, program.Ask(wire::QueryKind::kCostAnalysis));
    auto costs = std::make_unique<values::NamedValueList>();
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
  const compiled::Program& program = *args->executable->program;
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
  const compiled::Program& program = *args->executable->program;
  args->output_types = const_cast<PJRT_Buffer_Type*>(program.result_types.data());
  args->num_output_types = program.result_types.size();
  return OkStatus();
}

Status Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args* args) {
  const compiled::Program& program = *args->executable->program;
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
  const compiled::Program& program = *args->executable->program;
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
  const compiled::Program& program = *args->executable->program;
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
