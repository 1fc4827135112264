// PlanHost: what this host is to plan::Walker. One walk at a time, which may stop where a device is full.
//
// Ownership: owned by the engine; borrows what it is made of. Threads: the engine's. Locks: none.
#ifndef PTPATHWAYS_WORKER_PLAN_HOST_H_
#define PTPATHWAYS_WORKER_PLAN_HOST_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/plan/walker.h"
#include "csrc/worker/buffers.h"
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/completions.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/launcher.h"
#include "csrc/worker/programs.h"

namespace pathways::worker {

class PlanHost {
 public:
  using Value = std::shared_ptr<store::Object>;

  PlanHost(HostContext& context, const ClusterView& cluster, Buffers& buffers, Incoming& incoming, Launcher& launcher,
           Completions& completions, dataplane::DataPlane& data)
      : context_(context),
        cluster_(cluster),
        buffers_(buffers),
        incoming_(incoming),
        launcher_(launcher),
        completions_(completions),
        data_(data) {}

  // A walk: `run` and `results` must stay where they are until it has ended. `sequence`: the run's place in the
  // cluster's order. `refused`: not OK: the run does not fit, and only hands its error on.
  void Begin(const std::shared_ptr<Program>& program, const wire::RunProgram& run, std::span<const uint64_t> results,
             uint64_t sequence, Status refused);
  // False: a device is full.
  bool Continue() {
    if (times_) times_->read_ns = 0;
    return walker_.Continue(*program_->plan, *run_, *this);
  }
  Status Finish() { return walker_.Finish(*program_->plan, *run_, results_, *this); }
  bool walking() const { return pending_ != nullptr; }
  const Program& program() const { return *program_; }  // of the walk
  std::shared_ptr<PendingRun> TakePending() {
    times_.reset();
    return std::exchange(pending_, nullptr);
  }
  // Why a step of the last walk was not enqueued, or OK.
  const Status& failure() const { return failure_; }

  // --- plan::Walker's backend
  bool IsSomething(const Value& value) const { return value != nullptr; }
  const Status& ErrorOf(const Value& value) const { return value->error; }
  Value Failed(Status status);
  Value Empty(const wire::PlanSlot& slot) const;
  Result<Value> Argument(const plan::Plan& plan, const wire::RunProgram& run, size_t position, bool given_up);
  Status Execute(const plan::Plan& plan, size_t index, std::span<const Value> arguments,
                 std::span<const char> may_donate, std::span<Value> results);
  void Send(const wire::PlanStep& step, const wire::PlanSlot& slot, const Value& value, uint64_t key);
  Status Receive(const wire::PlanStep& step, const wire::PlanSlot& slot, Value& value, uint64_t first_key);
  void Refuse(const wire::PlanStep& step, uint64_t first_key, const Status& status);
  Status Copy(const wire::PlanStep& step, const Value& from, Value& to);
  void Keep(size_t result, uint64_t buffer, Value value);
  bool HasRoom(const plan::Plan& plan, size_t index, std::span<const Value> slots) const;

 private:
  // The object as the slot lists its shards; the object itself when that is how it is.
  Result<Value> Arranged(const wire::PlanSlot& slot, Value object) const;
  Status CheckType(const wire::PlanSlot& slot, const Value& value) const;
  static bool Owned(const Value& value);
  // When what reads the slot can begin, and when what made it has ended.
  void NoteArrival(uint32_t slot, const store::Object::Shard& shard) {
    if (times_ && RunTimes::NoteArrival(times_, slot, shard.device, shard.buffer)) arriving_.push_back(slot);
  }
  void NoteArrivals(uint32_t slot, const Value& argument);
  void NoteDeparture(uint32_t slot, const store::Object::Shard& shard) {
    if (times_) RunTimes::NoteDeparture(times_, slot, shard.device, shard.buffer);
  }

  // A step of the walk, where steps are followed one by one; an error of the first argument that has failed.
  Result<std::shared_ptr<PendingRun>> PartThatReads(std::span<const Value> arguments, size_t index) const;
  // The table of the launcher, filled with a step's arguments.
  void Arrange(std::span<const Value> arguments, std::span<const char> may_donate, size_t rows);
  // An output of a step that was enqueued.
  Value Output(const wire::PlanSlot& slot, size_t k);
  // Of a step, once more, so as to be told before what it has just subscribed.
  void NoteArrivalsAgain(const wire::PlanStep& step, std::span<const Value> arguments, size_t rows);

  HostContext& context_;
  const ClusterView& cluster_;
  Buffers& buffers_;
  Incoming& incoming_;
  Launcher& launcher_;
  Completions& completions_;
  dataplane::DataPlane& data_;
  plan::Walker<PlanHost> walker_;
  // Of the walk:
  const Program* program_ = nullptr;  // held by pending_, as are the next two by who began
  const wire::RunProgram* run_ = nullptr;
  std::span<const uint64_t> results_;
  uint64_t sequence_ = 0;
  Status failure_;
  Status refused_;
  std::shared_ptr<PendingRun> pending_;
  std::shared_ptr<RunTimes::Run> times_;  // null: the run is not noted
  std::vector<uint32_t> arriving_;        // slots whose arrival was noted, and which nothing has read yet
  bool in_place_ = false;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_PLAN_HOST_H_
