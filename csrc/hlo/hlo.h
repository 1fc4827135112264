// What the system needs to know about a program before compiling it, read from a serialized HloModuleProto
// (openxla/xla, xla/service/hlo.proto and xla/xla_data.proto).
//
// Threads: pure functions of bytes. Any bytes are safe to give: what is not a module gives INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_HLO_H_
#define PTPATHWAYS_HLO_HLO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways::hlo {

struct HloModuleInfo {
  std::string name;
  // Of the entry program before partitioning: global shapes.
  std::vector<TensorType> parameters;
  std::vector<TensorType> results;  // a top-level tuple's elements, or the one result
  bool result_is_tuple = false;
  // Whether parameter 0 is one tuple holding all parameters; `parameters` then holds its elements.
  bool parameters_are_tupled = false;

  // Whether any computation has an instruction that meets other devices or asks which one it is: collectives,
  // partition-id, replica-id, send and recv between devices.
  bool has_cross_device_instructions = false;
  std::vector<std::string> cross_device_opcodes;  // distinct, in order of appearance

  // Parameters whose memory the program may take: those aliased to a result, and those offered without naming one.
  // Each list is sorted and distinct.
  std::vector<int64_t> aliased_parameters;
  std::vector<int64_t> donated_parameters;

  // Of a partitioned module: how its results lay before, an OpSharding (of a tuple if there are several results).
  std::string output_sharding;

  // "train.py:42": the first instruction that carries a user's source line; empty when none does.
  std::string source_location;
};

Result<HloModuleInfo> ReadHloModule(std::string_view module);

// The HloModuleProto inside what pjrt::Executable::GetOptimizedProgram gives: `code` itself for the format "hlo", a
// part of it for "hlo_with_config" (HloModuleProtoWithConfig). UNIMPLEMENTED for other formats.
Result<std::string_view> HloModuleOfProgram(std::string_view format, std::string_view code);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_HLO_H_
