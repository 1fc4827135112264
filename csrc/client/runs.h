// Runs: what is submitted and has not ended: the window that bounds it, and its outcomes. Submits runs of functions;
// those of programs come from ProgramRuns.
//
// Ownership: owned by the session; borrows the parts below it. Threads: any. Locks: the session's (core.h).
#ifndef PTPATHWAYS_CLIENT_RUNS_H_
#define PTPATHWAYS_CLIENT_RUNS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/functions.h"
#include "csrc/client/logical_buffer.h"
#include "csrc/client/pending.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

// Borrows all of it from the caller.
struct RunArguments {
  std::span<const uint32_t> devices = {};
  // arguments[shard][position]; or, by position, buffers that lie on `devices` with a shard on each
  std::span<const std::vector<Shard>> arguments = {};
  std::span<const std::shared_ptr<LogicalBuffer>> whole = {};
  std::span<const uint32_t> donated = {};  // positions given up
};

struct RunResult {
  std::vector<std::shared_ptr<LogicalBuffer>> outputs;  // shard i of each on devices[i]
  std::shared_ptr<Event> done;                          // all shards finished, or the root cause of failure
};

struct PendingRun {
  std::shared_ptr<Event> done;
  uint32_t host = 0;
  std::shared_ptr<const std::string> what;
  std::shared_ptr<const std::vector<uint32_t>> hosts = nullptr;  // all that take part, when there are several
  int64_t since_ms = NowMsCoarse();

  bool Needs(const Loss& loss) const;
};

class Runs {
 public:
  Runs(Core& core, Functions& functions) : core_(core), functions_(functions) {}

  // Mints the outputs and submits. Blocks only while window_runs runs are in flight.
  Result<RunResult> Run(const std::shared_ptr<Function>& function, const RunArguments& arguments);
  // Blocks while window_runs runs are in flight, unless a Ctrl-C comes.
  void AwaitWindow();
  // Waits until everything submitted so far has completed.
  Status Drain(std::chrono::milliseconds timeout);

  // The first failure of a run since this was asked last, or OK; also of one that could not be submitted (NoteFailure).
  Status TakeFailure();
  void NoteFailure(const Status& status);

  // Enters a run; with `waits`, blocks as AwaitWindow does. An error, and nothing was entered: the session is closed,
  // or a host that takes part is lost. One that is lost later ends the run.
  Status Enter(uint64_t run, PendingRun pending, bool waits);
  // Sends the message of a run that was entered. An error ends the run.
  template <typename Body>
  Status Send(const Body& message, const std::shared_ptr<Event>& done) {
    count_ += 1;
    core_.SendLargeReleases();
    Status status = core_.Send(message);
    if (!status.ok()) End(message.run, done, status);
    return status;
  }

  uint64_t count() const { return count_; }  // submitted so far
  void OnDone(const wire::Done& done);
  void Fail(const Loss& loss, Endings& ended) PW_REQUIRES(core_.mutex);
  void List(std::vector<PendingItem>& out) const PW_REQUIRES(core_.mutex);

 private:
  bool HasRoom(size_t limit) const PW_REQUIRES(core_.mutex);
  // A window that was full opens again once a quarter of it is free: to wake the thread for each run that ends would
  // take longer than a small run.
  size_t Reopened() const { return core_.options.window_runs - core_.options.window_runs / 4; }
  void AwaitRoom(UniqueLock& lock) PW_REQUIRES(core_.mutex);
  void TellRoom() PW_REQUIRES(core_.mutex);
  Status CheckAlive(const PendingRun& run) const PW_REQUIRES(core_.mutex);
  void End(uint64_t run, const std::shared_ptr<Event>& done, const Status& status);

  Core& core_;
  Functions& functions_;
  std::unordered_map<uint64_t, PendingRun> runs_ PW_GUARDED_BY(core_.mutex);
  std::condition_variable room_;
  size_t waiting_ PW_GUARDED_BY(core_.mutex) = 0;  // threads
  Status failed_ PW_GUARDED_BY(core_.mutex);       // the first failure that TakeFailure has not given
  std::atomic<uint64_t> count_{0};
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_RUNS_H_
