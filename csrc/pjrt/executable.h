// Executable: a compiled program loaded on its devices.
//
// Ownership: held by unique_ptr, keeps its Client alive, unloads when destroyed.
// Threads:   every method may be called from any thread, Execute concurrently too.
#ifndef PTPATHWAYS_PJRT_EXECUTABLE_H_
#define PTPATHWAYS_PJRT_EXECUTABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/pjrt/buffer.h"
#include "csrc/pjrt/compiled.h"

namespace pathways::pjrt {

struct ExecuteArgs {
  // [device][argument]; one row per entry of Executable::devices(), in that order. All rows equally long.
  std::span<const std::span<Buffer* const>> arguments;
  // Index into Client::devices(), for a portable executable only; -1 runs on the executable's own devices.
  int execute_device = -1;
  // Numbers of arguments that must survive even if the program would donate them.
  std::span<const int64_t> non_donatable;
  int32_t launch_id = 0;
};

// Reused by the caller from call to call, so that a steady state does not allocate.
struct ExecuteOutputs {
  std::vector<std::vector<Buffer>> buffers;  // [device][output]
  std::vector<EventHandle> done;             // [device]: set when that device's part has finished or failed
};

class Executable {
 public:
  // Takes ownership of `loaded`, also when it fails.
  static Result<std::unique_ptr<Executable>> Adopt(std::shared_ptr<Client> client, PJRT_LoadedExecutable* loaded);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable();

  size_t num_outputs() const { return output_types_.size(); }
  // Per device: the types of one device's outputs.
  const std::vector<std::shared_ptr<const TensorType>>& output_types() const { return output_types_; }
  // Devices it runs on, as indices into Client::devices(), in the order of Execute's rows. Empty when portable: then
  // Execute takes one row and an execute_device.
  const std::vector<int>& devices() const { return devices_; }
  int64_t num_replicas() const { return num_replicas_; }
  int64_t num_partitions() const { return num_partitions_; }
  const std::string& name() const { return name_; }

  // Enqueues one run on all its devices. Errors found while enqueueing come back here; later ones poison the outputs
  // and `done`. Donated arguments are gone whatever the outcome.
  Status Execute(const ExecuteArgs& args, ExecuteOutputs* outputs) const;

  Result<std::string> Fingerprint() const;
  // For Client::Deserialize of the same plugin build and kind of device.
  Result<std::string> Serialize() const { return compiled_->Serialize(); }
  Result<OptimizedProgram> GetOptimizedProgram() const { return compiled_->GetOptimizedProgram(); }
  Result<NamedValues> CostAnalysis() const { return compiled_->CostAnalysis(); }
  std::optional<CompiledMemory> MemoryStats() const { return compiled_->MemoryStats(); }

 private:
  Executable(std::shared_ptr<Client> client, PJRT_LoadedExecutable* loaded)
      : client_(std::move(client)), loaded_(loaded) {}
  Status ReadDescription();
  Status ReadOutputTypes();
  Status CheckArgs(const ExecuteArgs& args) const;

  const std::shared_ptr<Client> client_;
  PJRT_LoadedExecutable* const loaded_;
  std::optional<Compiled> compiled_;  // set by Adopt
  std::vector<std::shared_ptr<const TensorType>> output_types_;
  std::vector<int> devices_;
  int64_t num_replicas_ = 1;
  int64_t num_partitions_ = 1;
  std::string name_;
};

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_EXECUTABLE_H_
