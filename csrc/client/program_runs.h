// ProgramRuns: submits runs of programs: with all their arguments, or on what the program's last run left.
//
// Ownership: owned by the session; borrows the parts below it. Threads: any. Locks: none of its own.
#ifndef PTPATHWAYS_CLIENT_PROGRAM_RUNS_H_
#define PTPATHWAYS_CLIENT_PROGRAM_RUNS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/client/core.h"
#include "csrc/client/logical_buffer.h"
#include "csrc/client/programs.h"
#include "csrc/client/runs.h"

namespace pathways::client {

// A whole logical buffer, or single shards of others that together make one.
struct ProgramArgument {
  std::shared_ptr<LogicalBuffer> buffer;
  std::vector<Shard> shards;  // used when `buffer` is null

  void GiveUp() const;
};

// A run on what the program's last such run left (wire::RunInPlace).
struct InPlaceArguments {
  uint64_t previous = 0;  // InPlaceResult::run of the last one; 0: this is the first, and fills every place
  std::vector<uint32_t> argument_places, result_places;  // only in the first
  struct Change {
    uint32_t place = 0;
    size_t position = 0;  // of the argument that is read there; not looked at when `before` is empty
    std::optional<ProgramArgument> before;
    bool written = false;
  };
  std::vector<Change> changes;
  struct Argument {
    size_t position = 0;
    ProgramArgument value;
  };
  std::vector<Argument> arguments;  // without a place, by position
  std::vector<uint32_t> results;    // positions of those without a place
  std::vector<uint32_t> donated;    // positions, of arguments named above
};

struct InPlaceResult {
  uint64_t run = 0;
  std::vector<uint64_t> placed;                         // for each change what is there now: an id without a handle
  std::vector<std::shared_ptr<LogicalBuffer>> outputs;  // those without a place
  std::shared_ptr<Event> done;
};

class ProgramRuns {
 public:
  ProgramRuns(Core& core, Runs& runs) : core_(core), runs_(runs) {}

  // Mints the outputs and submits one message, whatever the number of nodes and hosts. `donated`: positions given up.
  Result<RunResult> Run(const std::shared_ptr<Program>& program, std::span<const ProgramArgument> arguments,
                        std::span<const uint32_t> donated = {});
  // The same, on values that stay where they are from run to run. What lies in a written place has no handle: whoever
  // wants one makes it of the place's id, and says so in the next run. Does not block; call Runs::AwaitWindow before.
  Result<InPlaceResult> RunInPlace(const std::shared_ptr<Program>& program, const InPlaceArguments& arguments);

 private:
  // The argument as a run names it; single shards are listed in `assembled`.
  Result<uint64_t> ArgumentId(const Program& program, size_t position, const ProgramArgument& argument,
                              std::vector<uint64_t>& assembled) const;
  // Mints the ids of a run and of what it makes, enters it and returns its event.
  template <typename Body>
  Result<std::shared_ptr<Event>> Enter(const Program& program, size_t outputs, Body& run, bool waits);

  Core& core_;
  Runs& runs_;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_PROGRAM_RUNS_H_
