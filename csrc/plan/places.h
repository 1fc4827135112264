// Places: what a program's runs in place leave for each other (wire::RunInPlace), and what such a message means in
// full.
//
// Every party that has to know keeps its own: the client that writes the messages, the controller that keeps books of
// memory, the hosts that run. They agree because they handle the same messages in the same order; a message names the
// run that it continues, so that one which was lost on the way is noticed and nothing is computed from old values.
//
// A pure state machine. Ownership: plain value. Threads: none inside.
#ifndef PTPATHWAYS_PLAN_PLACES_H_
#define PTPATHWAYS_PLAN_PLACES_H_

#include <cstdint>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::plan {

// The positions of a plan's inputs that its steps overwrite when they may, as flags.
std::vector<char> OverwrittenInputs(const wire::RegisterPlan& plan);

// A run in place, spelled out.
struct FullRun {
  wire::RunProgram run;           // its first_output and output_count are those of the results without a place
  std::vector<uint64_t> results;  // buffer by result
};

class Places {
 public:
  Places() = default;
  // `overwritten`: by argument, whether computations may use its memory for their results.
  Places(std::vector<char> overwritten, size_t results) : overwritten_(std::move(overwritten)), results_(results) {}

  // INVALID_ARGUMENT: it does not fit the program. FAILED_PRECONDITION: it continues a run that was not the last.
  Status Check(const wire::RunInPlace& message) const;
  // Takes over what a checked message changes.
  void Apply(const wire::RunInPlace& message);
  // What the message that was applied last asks for.
  void Spell(const wire::RunInPlace& message, FullRun& full) const;

  // The buffers in all places; 0 where single shards were put together for one run.
  const std::vector<uint64_t>& buffers() const { return buffers_; }
  // By argument and by result: its place or kNoPlace.
  const std::vector<uint32_t>& argument_places() const { return argument_places_; }
  const std::vector<uint32_t>& result_places() const { return result_places_; }
  // By place: whether a result goes there, and whether its memory is that of the value it replaces.
  bool is_written(size_t place) const { return written_[place] != 0; }
  bool is_overwritten(size_t place) const { return written_[place] == 2; }

 private:
  std::vector<char> overwritten_;
  size_t results_ = 0;
  uint64_t last_ = 0;
  std::vector<uint32_t> argument_places_;
  std::vector<uint32_t> result_places_;
  std::vector<uint64_t> buffers_;  // by place
  std::vector<char> written_;      // by place: 1 by a result, 2 in the memory of an argument
};

}  // namespace pathways::plan

#endif  // PTPATHWAYS_PLAN_PLACES_H_
