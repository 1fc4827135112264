// Programs: compiled computations.
//
// Ownership: shared by the caller's handles, by what a recording notes, and by what it has still to run; immutable but
//            for what Program::mutex guards. A program keeps its function registered, and its compiler alive.
// Threads:   any. Locks: Program::mutex guards what is asked of workers and kept.
#ifndef PTPATHWAYS_COMPILED_PROGRAM_H_
#define PTPATHWAYS_COMPILED_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/session.h"
#include "csrc/compiled/code_room.h"
#include "csrc/compiled/compiler.h"
#include "csrc/hlo/numbers.h"
#include "csrc/values/named_value.h"
#include "csrc/values/value.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::compiled {

class LengthProgram;

// A program for a slice of several devices and arguments that lie there in one way: compiled when it is first executed
// so.
struct SliceProgram {
  std::vector<TilingPtr> arguments;
  values::DeviceListPtr devices;
  std::shared_ptr<client::Function> function;
  std::vector<TilingPtr> results;
};

// Numbers that a program takes as arguments, uploaded where it runs. Threads: any. Locks: its own, a leaf.
class ScalarArguments {
 public:
  // Before it is shared.
  void Set(std::vector<hlo::ModuleNumber> numbers) { numbers_ = std::move(numbers); }
  const std::vector<hlo::ModuleNumber>& numbers() const { return numbers_; }
  bool empty() const { return numbers_.empty(); }
  // Their values on a device that is bound to `on`; uploaded by the first call for it.
  Result<std::vector<values::ValuePtr>> On(const std::shared_ptr<values::ClientState>& client, PJRT_Device* device,
                                           const values::DeviceListPtr& on) const;

 private:
  std::vector<hlo::ModuleNumber> numbers_;
  mutable std::mutex mutex_;
  mutable std::vector<values::ValuePtr> uploaded_ PW_GUARDED_BY(mutex_);  // for the device that asked last
};

struct Program final : CodeHolder, std::enable_shared_from_this<Program> {
  std::shared_ptr<Compiler> compiler;
  client::FunctionSpec spec;  // for one device, or for `devices`
  std::string key;            // CodeRoom::RegisterOnce's
  std::string fingerprint;
  std::string options;  // as the caller gave them
  // Where the computation is shared by modules that differ in numbers (families.h): this module's, which are arguments
  // behind the caller's, and the caller's module, which is not spec's then.
  ScalarArguments numbers;
  std::string callers_module;
  // Where it is one of a kind that grows: what it runs on instead, on slices of one device (length_program.h),
  // with these behind the caller's arguments.
  std::shared_ptr<LengthProgram> lengthened;
  ScalarArguments length;
  mutable std::atomic<bool> has_settled{false};  // on its own program, as it is run again and again
  bool is_new = true;                            // as far as its client remembers
  int64_t replicas = 1;
  int64_t partitions = 1;
  std::vector<PJRT_Device*> devices;               // replica-major; empty when portable
  std::vector<PJRT_LogicalDeviceIds> logical_ids;  // of devices
  // Whether all devices must run it together. Otherwise each of them runs it alone.
  bool gang = false;
  // Of one device; the parameters only when the module could be read.
  std::vector<values::ArrayTypePtr> results;
  std::optional<std::vector<TensorType>> parameters;
  std::vector<uint32_t> donatable;  // sorted
  std::vector<int64_t> passed;      // the parameter that each result is, or -1; empty: not known
  std::string signature;            // types of parameters and results, for gangs formed call by call

  // The results in the C API's form.
  std::vector<PJRT_Buffer_Type> result_types;
  std::vector<int64_t> result_dims;  // of all results, one after the other
  std::vector<size_t> result_ranks;
  std::vector<const char*> result_memory_kinds;
  std::vector<size_t> result_memory_kind_sizes;
  std::vector<const char*> parameter_memory_kinds;
  std::vector<size_t> parameter_memory_kind_sizes;

  mutable std::mutex mutex;
  // Filled on first use:
  mutable std::optional<client::QueryAnswer> optimized PW_GUARDED_BY(mutex);
  mutable std::unique_ptr<values::NamedValueList> costs PW_GUARDED_BY(mutex);
  // In the cluster that the client was attached to last.
  mutable std::shared_ptr<client::Function> registered PW_GUARDED_BY(mutex);
  // The last used one first.
  mutable std::vector<std::shared_ptr<const SliceProgram>> for_slices PW_GUARDED_BY(mutex);
  mutable bool is_listed PW_GUARDED_BY(mutex) = false;  // in the compiler's CodeRoom

  const std::shared_ptr<values::ClientState>& client() const { return compiler->client(); }
  const std::string& name() const { return spec.name; }
  // Fills everything that follows from `results` and `parameters`.
  void Describe();
  // The function in the cluster that the client is attached to now; registered there by the first call.
  Result<std::shared_ptr<client::Function>> Registered() const;
  // The same for a slice; the first call for such arguments waits until it is compiled, because only then it is known
  // how the results lie.
  Result<std::shared_ptr<const SliceProgram>> ForSlice(const values::DeviceListPtr& on,
                                                       std::span<const values::ValuePtr> arguments) const;
  // Hosts have compiled something for it, as long as it holds that.
  void HoldsCode() const PW_REQUIRES(mutex);
  // CodeHolder: not while it is being registered.
  bool GiveUpCode() const override;
  // As Ask, of what this cluster has compiled it to already. FAILED_PRECONDITION: nothing.
  Result<client::QueryAnswer> AskOfCompiled(wire::QueryKind kind) const;
  const std::string& CallersModule() const { return numbers.empty() ? spec.module : callers_module; }
  // Asks a host of this program's devices.
  Result<client::QueryAnswer> Ask(wire::QueryKind kind) const;
  // What PJRT calls the optimized program: format and bytes, which live as long as the program.
  Result<const client::QueryAnswer*> Optimized() const;
  // "function 'step' (train.py:12)"
  std::string What() const;
};

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_PROGRAM_H_
