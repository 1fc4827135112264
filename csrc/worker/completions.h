// Completions: runs whose computations are enqueued, until they have ended and the controller has been told.
//
// Computations end on threads of the plugin, which only note it; what follows from it is done on the engine's thread.
//
// Ownership: owned by the engine; a pending run is shared with the plugin's callbacks.
// Threads:   the engine's; callbacks note ends on any.
// Locks:     mutex_ guards finished_; each pending run has one of its own. Both are leaves, and neither is held while
//            another is taken.
#ifndef PTPATHWAYS_WORKER_COMPLETIONS_H_
#define PTPATHWAYS_WORKER_COMPLETIONS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/thread_annotations.h"
#include "csrc/pjrt/buffer.h"
#include "csrc/store/object_store.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/report_pace.h"
#include "csrc/worker/root_causes.h"

namespace pathways::worker {

// What the steps of a program are called.
class StepNames {
 public:
  virtual ~StepNames() = default;
  virtual const std::string& name() const = 0;
  // "node 'n' of program 'p' (fig2.py:12)"
  virtual std::string Describe(size_t step) const = 0;
};

// A run whose devices have not all finished.
struct PendingRun {
  using Clock = std::chrono::steady_clock;
  explicit PendingRun(Clock::time_point enqueued = Clock::now()) : enqueued(enqueued) {}

  uint64_t run = 0;
  uint64_t first_output = 0;
  uint32_t output_count = 0;
  std::vector<uint64_t> results;  // of a run in place, whose ids are no sequence
  size_t device = 0;              // local, of its first shard
  const Clock::time_point enqueued;
  std::string what;             // of a function's, when somebody may ask: "function 'f' (train.py:12)"
  std::atomic<size_t> left{1};  // what has not ended, and one until everything is enqueued
  std::mutex mutex;
  Status status PW_GUARDED_BY(mutex);  // the first failure
  // The engine's thread's: what this run makes, and the runs that make what it reads, if they may fail yet.
  std::shared_ptr<store::Origin> origin = std::make_shared<store::Origin>();
  RootCauses::Inputs inputs;
  // Of a program's run: the program, and the events that were not set when their steps were enqueued, in order.
  std::shared_ptr<const StepNames> program;
  std::vector<std::pair<pjrt::EventHandle, size_t>> steps;
  Status cause;  // the root cause, when it is known before all has ended
  // Of a step of a program, where steps are followed one by one (Completions::PartOf): the run, until the step has
  // ended, and which step it is.
  std::shared_ptr<PendingRun> whole;
  size_t step = 0;
  bool is_under_way = false;  // counted by the pace of reports

  void Fail(Status failure);
  Status Outcome();
  size_t result_count() const { return results.empty() ? output_count : results.size(); }
  uint64_t result(size_t k) const { return results.empty() ? first_output + k : results[k]; }
  // What holds it up: of a program the first step that is not done.
  std::string AtWhat() const;
};

class Completions {
 public:
  using Clock = PendingRun::Clock;
  using PendingPtr = std::shared_ptr<PendingRun>;

  Completions(HostContext& context, const RootCauses& causes)
      : context_(context), causes_(causes), device_free_at_(context.device_count()) {}

  // The run has not ended before this has.
  void Watch(const PendingPtr& pending, pjrt::EventHandle& event);
  // Everything that is to be watched is. Ends the run at once if all of it has ended.
  void Enqueued(const PendingPtr& pending);
  // A run that ended well within its launch; there is nothing to follow.
  void Ended(uint64_t run, size_t device, Clock::time_point enqueued);
  // Where the plugin hands no errors on: a step of the run, with inputs and an origin of its own. What it makes is
  // known to be right when it has ended, and the run of the program has not ended before. EnqueuedPart: as Enqueued.
  static PendingPtr PartOf(const PendingPtr& whole, size_t step);
  void EnqueuedPart(const PendingPtr& part);
  // The run has failed before anything was enqueued, and its results have no value.
  void Poison(uint64_t run, std::span<const uint64_t> results, const Status& status);

  const RootCauses& causes() const { return causes_; }
  // The root cause of a failure of `what`, which read what `inputs` made. `own`: the run's origin, or null.
  Status RootCause(const Status& reported, const std::string& what, const RootCauses::Inputs& inputs,
                   store::Origin* own = nullptr) const;
  // The same of a run that is under way.
  Status RootCauseOf(uint64_t run, const Status& reported, const std::string& what) const;

  // Those that have not ended, in order.
  std::vector<PendingPtr> Running() const;

 private:
  struct Finished {
    PendingPtr pending;
    Clock::time_point at;
  };
  void Collect();
  void Finish(const PendingPtr& pending, const Status& status, Clock::time_point at);
  void FinishPart(PendingRun& part, Status cause, const Status& status, Clock::time_point at);
  Status CauseOf(const PendingRun& pending, const Status& status) const;
  void FailResults(const PendingRun& pending, const Status& cause);
  std::chrono::microseconds Busy(size_t device, Clock::time_point enqueued, Clock::time_point at);
  void Report(uint64_t run, const Status& status, uint64_t device_us);
  void ReportSoon();
  void Flush();

  HostContext& context_;
  const RootCauses& causes_;
  std::vector<Clock::time_point> device_free_at_;
  std::deque<std::weak_ptr<PendingRun>> running_;  // in order; those that have finished go when others come
  ReportPace pace_;
  wire::Done done_;  // what is to be reported
  bool flush_posted_ = false;
  bool is_timed_ = false;

  std::mutex mutex_;
  std::vector<Finished> finished_ PW_GUARDED_BY(mutex_);
  size_t wake_at_ PW_GUARDED_BY(mutex_) = 1;  // the engine's thread is woken up when so many have finished
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_COMPLETIONS_H_
