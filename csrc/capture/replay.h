// Replay: a captured step, ready to be run again without the caller's tracing.
//
// The recorded computations are a program of the cluster (one message per host and run). Its arguments are read from
// the cells of the caller's buffers at the time of the run, and what replaces state is put into the cells again: the
// caller's tensors keep their handles and never notice. State stays at the workers meanwhile (resident.h). Like
// Execute, a run waits for nothing; while a gang on its devices is incomplete its values are pending, and nothing is
// resident.
//
// Ownership: keeps the program registered and its constants alive; cells only weakly (their handles are the caller's).
// Threads:   calls on one replay must not overlap. Locks: those of the cells.
#ifndef PTPATHWAYS_CAPTURE_REPLAY_H_
#define PTPATHWAYS_CAPTURE_REPLAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/capture/resident.h"
#include "csrc/client/session.h"
#include "csrc/values/buffer.h"
#include "csrc/values/value.h"

namespace pathways::capture {

// Where an argument of the program comes from.
struct ReplayInput {
  enum class Kind { kState, kConstant, kFeed } kind = Kind::kState;
  size_t index = 0;         // of a state or a feed
  bool may_donate = false;  // if nobody else holds its value
  values::ValuePtr like;    // what it was when it was recorded; a constant is this value
};

// Where a result of the program goes: into states, to the caller, or both.
struct ReplayOutput {
  std::vector<size_t> states;
  bool returned = false;
  values::ValuePtr like;  // what it was when it was recorded
};

// What a run is given: a value that exists, or the bytes of the whole tensor, dense and row-major, to upload.
struct ReplayFeed {
  values::ValuePtr value;
  std::span<const std::byte> bytes;  // used when `value` is null
};

class Replay {
 public:
  // Inputs and outputs are parallel to the program's; there must be one.
  static Result<std::shared_ptr<Replay>> Create(std::shared_ptr<client::Program> program,
                                                std::vector<ReplayInput> inputs, std::vector<ReplayOutput> outputs,
                                                size_t states, size_t feeds);

  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // State `index` lies in `cell` from now on.
  Status Bind(size_t index, const std::shared_ptr<values::BufferCell>& cell);
  // FAILED_PRECONDITION: a state's value is of another type than the program reads there, or lies another way, so that
  // a run would be refused. A state that the last run left is as it has to be.
  Status CheckStates() const;

  // Submits a run and puts the new values into the states. Gives the values that are returned, by output.
  // FAILED_PRECONDITION, with nothing changed: a state's buffer, read or written, is gone, or an argument is of another
  // type, lies another way, or on other devices than when it was recorded.
  Result<std::vector<values::ValuePtr>> Run(std::span<const ReplayFeed> feeds);

 private:
  using Values = std::vector<values::ValuePtr>;
  using Ports = std::vector<Port>;

  Replay() = default;
  // Which states and constants have a place, and which arguments and results not.
  void MakePlaces(size_t states);
  Result<Values> RunResident(std::span<const ReplayFeed> feeds);
  Result<Values> RunHeld(std::span<const ReplayFeed> feeds);
  // Of the states that the results at `positions` are put into.
  Status CheckTake(std::span<const size_t> positions) const;
  void Put(size_t result, const values::ValuePtr& value, Values& returned) const;
  // Whether a run may be given the argument's memory. `fed`: values that the caller passes.
  bool MayGive(size_t position, const values::Value& value, const std::set<const values::Value*>& fed) const;
  // The values of the arguments at `positions`, checked.
  Result<Values> Gather(std::span<const size_t> positions, std::span<const ReplayFeed> feeds) const;
  Result<values::ValuePtr> Find(size_t position, std::span<const ReplayFeed> feeds) const;
  Result<values::ValuePtr> Upload(size_t position, std::span<const std::byte> bytes) const;
  // Those of `values` that the caller passes; they may be state, too.
  std::set<const values::Value*> Fed(std::span<const size_t> positions, const Values& values) const;
  static Result<client::RunResult> Launch(const values::ClientState& client,
                                          const std::shared_ptr<client::Program>& program, const Values& values,
                                          std::vector<uint32_t> donated);

  std::shared_ptr<values::ClientState> client_;
  std::shared_ptr<client::Program> program_;
  std::vector<ReplayInput> inputs_;
  std::vector<ReplayOutput> outputs_;
  Ports input_ports_, output_ports_;
  std::vector<uint32_t> device_ids_;                      // of all that take part
  std::vector<std::weak_ptr<values::BufferCell>> cells_;  // by state
  size_t feeds_ = 0;
  std::shared_ptr<Residents> residents_;
  std::vector<size_t> place_of_;         // by state, or Residents::kNowhere
  std::vector<size_t> all_arguments_;    // 0, 1, ...
  std::vector<size_t> named_arguments_;  // those without a place
  std::vector<size_t> all_results_;
  std::vector<size_t> named_results_;
};

}  // namespace pathways::capture

#endif  // PTPATHWAYS_CAPTURE_REPLAY_H_
