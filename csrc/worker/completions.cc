#include "csrc/worker/completions.h"

#include <algorithm>

namespace pathways::worker {
namespace {

// Outcomes that travel together.
constexpr size_t kMostAtOnce = 64;

}  // namespace

void PendingRun::Fail(Status failure) {
  std::lock_guard lock(mutex);
  if (status.ok()) status = std::move(failure);
}

Status PendingRun::Outcome() {
  std::lock_guard lock(mutex);
  return status;
}

std::string PendingRun::AtWhat() const {
  if (program == nullptr) return what;
  for (const auto& [event, step] : steps) {
    if (!event.IsReady()) return program->Describe(step);
  }
  return program->name();
}

void Completions::Watch(const PendingPtr& pending, pjrt::EventHandle& event) {
  pending->left.fetch_add(1);
  event.OnReady([this, pending](Status status) {
    if (!status.ok()) pending->Fail(std::move(status));
    if (pending->left.fetch_sub(1) != 1) return;
    bool wake;
    {
      std::lock_guard lock(mutex_);
      finished_.push_back({pending, Clock::now()});
      wake = finished_.size() == wake_at_;
    }
    if (wake) context_.engine().Post([this] { Collect(); });
  });
}

void Completions::Enqueued(const PendingPtr& pending) {
  if (pending->left.fetch_sub(1) == 1) return Finish(pending, pending->Outcome(), Clock::now());
  while (!running_.empty() && running_.front().expired()) running_.pop_front();
  running_.push_back(pending);
  pending->is_under_way = true;
  pace_.Began();
}

void Completions::Ended(uint64_t run, size_t device, Clock::time_point enqueued) {
  Report(run, OkStatus(), static_cast<uint64_t>(Busy(device, enqueued, Clock::now()).count()));
}

void Completions::Collect() {
  std::vector<Finished> finished;
  size_t together = 1;
  bool more = true;
  while (more) {
    {
      std::lock_guard lock(mutex_);
      finished.swap(finished_);
    }
    for (const Finished& item : finished) Finish(item.pending, item.pending->Outcome(), item.at);
    finished.clear();
    // Where errors are not handed on, what depends on a run is enqueued when the run has ended.
    if (context_.hands_errors_on()) together = pace_.together();
    std::lock_guard lock(mutex_);
    wake_at_ = together;
    more = finished_.size() >= together;
  }
  if (together > 1) ReportSoon();
}

void Completions::Finish(const PendingPtr& ended, const Status& status, Clock::time_point at) {
  PendingRun& pending = *ended;
  // Whether it failed first is known when all that it depends on has ended; their news may come after its own. Where
  // the plugin hands no errors on, that is also how a run is known to have failed with what it read.
  const bool alone = !context_.hands_errors_on();
  if ((alone || !status.ok()) &&
      RootCauses::MustWait(pending.inputs, [this, ended, status, at] { Finish(ended, status, at); })) {
    return;
  }
  Status cause;
  if (alone) {
    cause = pending.cause.ok() ? RootCauses::FirstFailure(pending.inputs) : pending.cause;
    if (pending.whole != nullptr) return FinishPart(pending, std::move(cause), status, at);
  }
  const std::chrono::microseconds busy = Busy(pending.device, pending.enqueued, at);
  if (cause.ok() && !status.ok()) cause = CauseOf(pending, status);
  if (!cause.ok()) FailResults(pending, cause);
  pending.inputs.clear();
  if (pending.is_under_way) pace_.Ended(busy);
  Report(pending.run, cause, static_cast<uint64_t>(busy.count()));
  RootCauses::End(*pending.origin, cause);
}

Completions::PendingPtr Completions::PartOf(const PendingPtr& whole, size_t step) {
  auto part = std::make_shared<PendingRun>(whole->enqueued);
  part->program = whole->program;
  part->whole = whole;
  part->step = step;
  return part;
}

void Completions::EnqueuedPart(const PendingPtr& part) {
  part->whole->left.fetch_add(1);
  if (part->left.fetch_sub(1) == 1) Finish(part, part->Outcome(), Clock::now());
}

void Completions::FinishPart(PendingRun& part, Status cause, const Status& status, Clock::time_point at) {
  if (cause.ok() && !status.ok()) {
    cause = RootCause(status, part.program->Describe(part.step), part.inputs, part.origin.get());
  }
  part.inputs.clear();
  const PendingPtr whole = std::exchange(part.whole, nullptr);
  if (whole->cause.ok()) whole->cause = cause;  // before those that read it
  RootCauses::End(*part.origin, cause);
  if (whole->left.fetch_sub(1) == 1) Finish(whole, whole->Outcome(), at);
}

// How long its device has been at it.
std::chrono::microseconds Completions::Busy(size_t device, Clock::time_point enqueued, Clock::time_point at) {
  Clock::time_point& free_at = device_free_at_[device];
  const auto start = std::max(enqueued, free_at);
  free_at = std::max(at, free_at);
  return std::chrono::duration_cast<std::chrono::microseconds>(std::max(at - start, Clock::duration(0)));
}

// Of several steps the first one that failed is to blame, not the last, which only handed the error on.
Status Completions::CauseOf(const PendingRun& pending, const Status& status) const {
  for (const auto& [event, step] : pending.steps) {
    if (!event.IsReady()) continue;
    const Status outcome = event.Await();
    if (outcome.ok()) continue;
    return RootCause(outcome, pending.program->Describe(step), pending.inputs, pending.origin.get());
  }
  return RootCause(status, pending.what, pending.inputs, pending.origin.get());
}

// Of a program only the results that the failure reached; the others keep their values.
void Completions::FailResults(const PendingRun& pending, const Status& cause) {
  const auto failed = [](store::Object& object) {
    for (size_t p = 0; p < object.shards.size(); ++p) {
      const std::shared_ptr<store::Origin>& step = object.OriginOf(p);
      if (step != nullptr && step->ended && !step->cause.ok()) return true;
      if (!object.At(p).buffer.valid()) continue;
      const Result<pjrt::EventHandle> ready = object.At(p).buffer.ReadyEvent();
      if (ready.ok() && ready->IsReady() && !ready->Await().ok()) return true;
    }
    return false;
  };
  for (size_t k = 0; k < pending.result_count(); ++k) {
    const std::shared_ptr<store::Object> object = context_.store().Find(pending.result(k));
    if (object == nullptr) continue;
    if (pending.program == nullptr || (object->error.ok() && failed(*object))) object->error = cause;
  }
}

Status Completions::RootCause(const Status& reported, const std::string& what, const RootCauses::Inputs& inputs,
                              store::Origin* own) const {
  return causes_.Find(reported, inputs, own,
                      [&](const Status& status) { return context_.Here(status.WithPrefix(what)); });
}

Status Completions::RootCauseOf(uint64_t run, const Status& reported, const std::string& what) const {
  for (const PendingPtr& pending : Running()) {
    if (pending->run == run) return RootCause(reported, what, pending->inputs);
  }
  return RootCause(reported, what, {});
}

std::vector<Completions::PendingPtr> Completions::Running() const {
  std::vector<PendingPtr> found;
  for (const std::weak_ptr<PendingRun>& entry : running_) {
    if (PendingPtr pending = entry.lock()) found.push_back(std::move(pending));
  }
  return found;
}

void Completions::Poison(uint64_t run, std::span<const uint64_t> results, const Status& status) {
  for (const uint64_t id : results) {
    auto object = std::make_shared<store::Object>(0);
    object->error = status;
    (void)context_.store().Insert(id, std::move(object));  // only fails for an id in use, whose value stays
  }
  Report(run, status, 0);
}

void Completions::Report(uint64_t run, const Status& status, uint64_t device_us) {
  done_.outcomes.push_back({run, context_.number(), device_us, status});
  if (done_.outcomes.size() >= kMostAtOnce) return Flush();
  if (done_.outcomes.size() < pace_.together()) return ReportSoon();
  if (std::exchange(flush_posted_, true)) return;
  context_.engine().Post([this] {
    flush_posted_ = false;
    Flush();
  });
}

void Completions::ReportSoon() {
  if (std::exchange(is_timed_, true)) return;
  context_.engine().AddTimer(ReportPace::kLatest, {}, [this] {
    is_timed_ = false;
    Collect();
    Flush();
  });
}

void Completions::Flush() {
  if (done_.outcomes.empty()) return;
  context_.Send(done_);
  done_.outcomes.clear();
}

}  // namespace pathways::worker
