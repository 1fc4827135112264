// FailedOutputs: why the results of runs and copies that failed before any host heard of them are nowhere.
//
// A host fails the results of a run or a copy that it was given. Of others it knows nothing: a later run on it that
// takes such a result would be told that its argument is not there, instead of what went wrong.
//
// Ownership: a plain value, owned by Client. Threads: none inside; the owner serialises calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_FAILED_OUTPUTS_H_
#define PTPATHWAYS_CONTROLLER_FAILED_OUTPUTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {

class FailedOutputs {
 public:
  // Runs that are remembered; of older ones the hosts say what they can.
  static constexpr size_t kRunsMax = 4096;

  // The buffers [first, first + count) have no value because of `cause`.
  void Note(uint64_t first, uint32_t count, const Status& cause) {
    if (count == 0) return;
    runs_.insert_or_assign(first, Run{first + count, cause});
    if (runs_.size() > kRunsMax) runs_.erase(runs_.begin());  // numbers grow: the oldest
  }

  // Why the buffer has no value; null: not for this reason.
  const Status* Find(uint64_t buffer) const {
    auto after = runs_.upper_bound(buffer);
    if (after == runs_.begin()) return nullptr;
    const Run& run = std::prev(after)->second;
    return buffer < run.end ? &run.cause : nullptr;
  }

  // The same of the first of a run's arguments that has none (wire::Run).
  const Status* FindAmong(std::span<const uint64_t> arguments, std::span<const uint64_t> assembled) const {
    if (runs_.empty()) return nullptr;
    for (const uint64_t argument : arguments) {
      if ((argument & wire::kAssembledBit) != 0) continue;
      if (const Status* cause = Find(argument)) return cause;
    }
    for (size_t i = 0; i < assembled.size(); i += 2) {
      if (const Status* cause = Find(assembled[i])) return cause;
    }
    return nullptr;
  }

 private:
  struct Run {
    uint64_t end;
    Status cause;
  };
  std::map<uint64_t, Run> runs_;  // by the first buffer
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_FAILED_OUTPUTS_H_
