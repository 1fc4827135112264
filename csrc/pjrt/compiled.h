// Compiled: what a compiler made of a program, loaded on devices or not. For looking at it and for storing it.
//
// Ownership: owns the PJRT_Executable, keeps its Api alive.
// Threads:   immutable; every method may be called from any thread.
#ifndef PTPATHWAYS_PJRT_COMPILED_H_
#define PTPATHWAYS_PJRT_COMPILED_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "csrc/base/status.h"
#include "csrc/pjrt/api.h"
#include "csrc/pjrt/named_value.h"

namespace pathways::pjrt {

struct OptimizedProgram {
  std::string format;  // "hlo" (HloModuleProto), "hlo_with_config", "mlir"
  std::string code;
};

// Bytes, as the compiler counted them; of one device.
struct CompiledMemory {
  int64_t generated_code = 0;
  int64_t arguments = 0;
  int64_t outputs = 0;
  int64_t aliased = 0;  // part of both arguments and outputs
  int64_t temporary = 0;
  int64_t peak = 0;  // 0 when the plugin does not say
};

class Compiled {
 public:
  Compiled(std::shared_ptr<const Api> api, PJRT_Executable* executable)
      : api_(std::move(api)), executable_(executable) {}
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled();

  PJRT_Executable* raw() const { return executable_; }

  Result<std::string> Name() const;
  Result<int64_t> NumReplicas() const;
  Result<int64_t> NumPartitions() const;
  // Two that are equal were compiled alike. UNIMPLEMENTED by plugins that have it for loaded ones only.
  Result<std::string> Fingerprint() const;
  Result<std::string> Serialize() const;
  Result<OptimizedProgram> GetOptimizedProgram() const;
  // "flops", "bytes accessed", ...
  Result<NamedValues> CostAnalysis() const;
  // Nothing when the plugin does not report it.
  std::optional<CompiledMemory> MemoryStats() const;

 private:
  const std::shared_ptr<const Api> api_;
  PJRT_Executable* const executable_;
};

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_COMPILED_H_
