#include "csrc/pjrt/compiled.h"

namespace pathways::pjrt {

Compiled::~Compiled() {
  PJRT_Executable_Destroy_Args args{};
  args.executable = executable_;
  (void)api_->Call<&PJRT_Api::PJRT_Executable_Destroy>(&args);  // nothing to do about a failing destructor
}

Result<std::string> Compiled::Name() const {
  PJRT_Executable_Name_Args args{};
  args.executable = executable_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_Name>(&args));
  return std::string(args.executable_name, args.executable_name_size);
}

Result<int64_t> Compiled::NumReplicas() const {
  PJRT_Executable_NumReplicas_Args args{};
  args.executable = executable_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_NumReplicas>(&args));
  return static_cast<int64_t>(args.num_replicas);
}

Result<int64_t> Compiled::NumPartitions() const {
  PJRT_Executable_NumPartitions_Args args{};
  args.executable = executable_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_NumPartitions>(&args));
  return static_cast<int64_t>(args.num_partitions);
}

Result<std::string> Compiled::Fingerprint() const {
  PJRT_Executable_Fingerprint_Args args{};
  args.executable = executable_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_Fingerprint>(&args));
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

Result<std::string> Compiled::Serialize() const {
  PJRT_Executable_Serialize_Args args{};
  args.executable = executable_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_Serialize>(&args));
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  if (args.serialized_executable_deleter != nullptr) args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

Result<OptimizedProgram> Compiled::GetOptimizedProgram() const {
  PJRT_Program program{};
  program.struct_size = PjrtStructSize<PJRT_Program>::value;
  PJRT_Executable_OptimizedProgram_Args args{};
  args.executable = executable_;
  args.program = &program;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(&args));  // asks for the size
  OptimizedProgram out;
  out.format.assign(program.format, program.format_size);
  out.code.resize(program.code_size);
  program.code = out.code.data();
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(&args));
  return out;
}

Result<NamedValues> Compiled::CostAnalysis() const {
  PJRT_Executable_GetCostAnalysis_Args args{};
  args.executable = executable_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_GetCostAnalysis>(&args));
  return FromNamedValues(args.properties, args.num_properties);
}

std::optional<CompiledMemory> Compiled::MemoryStats() const {
  PJRT_Executable_GetCompiledMemoryStats_Args args{};
  args.executable = executable_;
  if (!api_->Call<&PJRT_Api::PJRT_Executable_GetCompiledMemoryStats>(&args).ok()) return std::nullopt;
  CompiledMemory out;
  out.generated_code = args.generated_code_size_in_bytes;
  out.arguments = args.argument_size_in_bytes;
  out.outputs = args.output_size_in_bytes;
  out.aliased = args.alias_size_in_bytes;
  out.temporary = args.temp_size_in_bytes;
  out.peak = args.peak_memory_in_bytes;
  return out;
}

}  // namespace pathways::pjrt
