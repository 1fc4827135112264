// LengthProgram: one computation for modules that differ in a size that grows (hlo/lengths.h), up to a bound.
//
// It takes the length as an argument and runs on slices of one device. Its arrays are larger than the caller's: a value
// that comes from it is kept so (Value::padded), and made the caller's array when somebody else asks for it.
//
// Nobody relies on it before it was seen to give the same as the first module of the kind, compiled by itself, for
// arguments of that one's length with other contents behind them. Where that cannot be shown each length is compiled.
//
// When hosts have little room for code it gives its own up as a program does (code_room.h). The next run compiles the
// module that was compared, with the same options, so it is not compared again.
//
// Ownership: shared by its family (length_families.h) and by the programs that run on it; holds the first one weakly.
// Threads:   every method may be called from any thread.
// Locks:     proof_ is held while it is being proved, which calls the session and waits, and takes the first program's
//            mutex; mutex_ guards its functions, is taken with or without proof_, and is a leaf. GiveUpCode takes
//            mutex_ only.
#ifndef PTPATHWAYS_COMPILED_LENGTH_PROGRAM_H_
#define PTPATHWAYS_COMPILED_LENGTH_PROGRAM_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/session.h"
#include "csrc/compiled/code_room.h"
#include "csrc/hlo/lengths.h"
#include "csrc/values/value.h"

namespace pathways::compiled {

struct Program;

class LengthProgram final : public CodeHolder, public std::enable_shared_from_this<LengthProgram> {
 public:
  static constexpr int kInARow = 16;  // runs of one length, before it gets a computation of its own

  // `first`: the first module of the kind, compiled by itself; `first_scalars`: its numbers at module.open, and its
  // length.
  LengthProgram(hlo::LengthModule module, std::weak_ptr<const Program> first,
                std::vector<hlo::ModuleNumber> first_scalars)
      : module_(std::move(module)), first_(std::move(first)), first_scalars_(std::move(first_scalars)) {}

  const hlo::LengthModule& module() const { return module_; }
  // Whether arrays of such a module's types can be made longer and shorter.
  static bool CanResize(const hlo::LengthModule& module);

  // Whether `user` is to run on it now: it gives what the first module gives, and `user` is not run again and again
  // without another length in between, which its own computation does in less time. The first is found out at the first
  // call, which waits for both modules to be compiled and to run; with `arguments` where they are of fixed size. Says
  // on stderr why not.
  bool Serves(const Program& user, PJRT_Device* device, const values::DeviceListPtr& on,
              std::span<const values::ValuePtr> arguments);

  // A run of `user`, whose own arguments these are and whose lengths and numbers `scalars`.
  Result<client::RunResult> Run(const Program& user, const values::DeviceListPtr& on,
                                std::span<const values::ValuePtr> arguments, std::span<const values::ValuePtr> scalars,
                                std::span<const uint32_t> donated);
  // What the run gave becomes the caller's values.
  void Resolve(const std::shared_ptr<const Program>& user, const client::RunResult& run,
               std::span<const values::ValuePtr> results);

  // CodeHolder: not while it is being proved, nor while a run of it is being submitted.
  bool GiveUpCode() const override;

 private:
  enum class State { kUnknown, kProven, kRefuted };

  Status Prove(const Program& user, PJRT_Device* device, const values::DeviceListPtr& on,
               std::span<const values::ValuePtr> arguments);
  Result<std::shared_ptr<client::Function>> Registered(const Program& user);
  // Hosts have compiled something for it: it may be asked to give that up.
  void HoldsCode(CodeRoom& code);
  // The array with its growing dimensions as long as `to` says: more of them with zeros, or fewer.
  Result<client::Shard> Resized(const Program& user, const client::Shard& shard, const TensorType& to);

  const hlo::LengthModule module_;
  const std::weak_ptr<const Program> first_;
  const std::vector<hlo::ModuleNumber> first_scalars_;

  std::mutex proof_;
  State state_ PW_GUARDED_BY(proof_) = State::kUnknown;
  const Program* latest_ PW_GUARDED_BY(proof_) = nullptr;  // only compared
  int in_a_row_ PW_GUARDED_BY(proof_) = 0;                 // runs of it
  std::atomic<bool> being_proved_{false};                  // with proof_ only
  mutable std::mutex mutex_;
  // In the cluster that was attached to last. Others may share the function; registered_ counts itself and launches.
  mutable std::shared_ptr<client::Function> registered_ PW_GUARDED_BY(mutex_);
  mutable std::map<std::string, std::shared_ptr<client::Function>> resizing_ PW_GUARDED_BY(mutex_);
  mutable bool is_listed_ PW_GUARDED_BY(mutex_) = false;  // in the client's CodeRoom
  std::string options_ PW_GUARDED_BY(mutex_);             // with which it was first compiled
};

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_LENGTH_PROGRAM_H_
