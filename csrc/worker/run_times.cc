#include "csrc/worker/run_times.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

namespace pathways::worker {
namespace {

RunTimes::Moment* Add(std::deque<RunTimes::Moment>& moments, uint32_t slot, size_t device, int64_t at_ns) {
  RunTimes::Moment& moment = moments.emplace_back();
  moment.slot = slot;
  moment.device = static_cast<uint32_t>(device);
  moment.at_ns.store(at_ns, std::memory_order_relaxed);
  return &moment;
}

void NoteWhen(const pjrt::EventHandle& ready, const std::shared_ptr<RunTimes::Run>& run, RunTimes::Moment* moment) {
  run->writers.fetch_add(1, std::memory_order_relaxed);
  ready.OnReady([run, moment](const Status&) {
    moment->at_ns.store(SteadyNs(), std::memory_order_relaxed);
    run->Written();
  });
}

}  // namespace

bool RunTimes::NoteArrival(const std::shared_ptr<Run>& run, uint32_t slot, size_t device, const pjrt::Buffer& value) {
  run->read_ns = 0;
  if (!value.valid()) return false;
  const Result<pjrt::EventHandle> ready = value.ReadyEvent();
  if (!ready.ok() || ready->IsReady()) return false;
  NoteWhen(*ready, run, Add(run->arrivals, slot, device, 0));
  return true;
}

void RunTimes::NoteDeparture(const std::shared_ptr<Run>& run, uint32_t slot, size_t device, const pjrt::Buffer& value) {
  run->read_ns = 0;
  if (!value.valid()) return;  // in host memory
  const Result<pjrt::EventHandle> ready = value.ReadyEvent();
  if (!ready.ok()) return;
  const bool there = ready->IsReady();
  Moment* const moment = Add(run->departures, slot, device, there ? SteadyNs() : 0);
  if (!there) NoteWhen(*ready, run, moment);
}

RunTimes::Span* RunTimes::Run::Add(size_t step, size_t device, int64_t enqueued_ns) {
  if (used == spans.size()) return nullptr;
  Span& span = spans[used++];
  span.step = static_cast<uint32_t>(step);
  span.device = static_cast<uint32_t>(device);
  span.enqueued_ns = enqueued_ns;
  return &span;
}

std::shared_ptr<RunTimes::Run> RunTimes::Begin(uint64_t run) {
  std::shared_ptr<Run> next;
  if (runs_.size() == wire::kMaxTimedRuns) {
    if (runs_.front()->writers.load(std::memory_order_acquire) == 0) next = std::move(runs_.front());
    runs_.pop_front();
  }
  if (next == nullptr) next = std::make_shared<Run>(computations_);
  for (size_t i = 0; i < next->used; ++i) next->spans[i].end_ns.store(0, std::memory_order_relaxed);
  next->run = run;
  next->used = 0;
  next->read_ns = 0;
  next->arrivals.clear();
  next->departures.clear();
  runs_.push_back(next);
  return next;
}

wire::TimedRun RunTimes::Collect(const Run& run, const plan::Plan& plan, uint32_t first_device) const {
  const auto key = [](uint32_t slot, uint32_t device) { return (uint64_t{slot} << 32) | device; };
  std::unordered_map<uint64_t, int64_t> came, left;  // by slot and device
  for (auto [moments, first] : {std::pair(&run.arrivals, &came), std::pair(&run.departures, &left)}) {
    for (const Moment& moment : *moments) {
      const int64_t at = moment.at_ns.load(std::memory_order_relaxed);
      if (at == 0) continue;
      int64_t& earliest = first->try_emplace(key(moment.slot, moment.device), at).first->second;
      earliest = std::min(earliest, at);
    }
  }
  struct End {
    const Span* span;
    int64_t ns;
  };
  std::vector<End> ends;
  std::map<std::pair<uint32_t, int64_t>, int64_t> noted;  // by device and when it was noted: when it was
  for (size_t i = run.used; i-- > 0;) {                   // what reads a result before what made it
    const Span& span = run.spans[i];
    const int64_t late = span.end_ns.load(std::memory_order_acquire);
    if (late == 0) continue;
    const wire::PlanStep& step = plan.steps()[span.step];
    int64_t end = late;
    for (const uint32_t slot : step.results) {
      if (auto at = left.find(key(slot, span.device)); at != left.end()) end = std::min(end, at->second);
    }
    end = std::max(end, span.enqueued_ns);
    if (end != late) noted[{span.device, late}] = end;
    for (const uint32_t slot : step.arguments) {
      int64_t& first = left.try_emplace(key(slot, span.device), end).first->second;
      first = std::min(first, end);
    }
    ends.push_back({&span, end});
  }
  std::reverse(ends.begin(), ends.end());
  wire::TimedRun out;
  out.run = run.run;
  for (const auto& [span, end] : ends) {
    const auto before = noted.find({span->device, span->before_ns});
    int64_t start = std::max(span->enqueued_ns, before == noted.end() ? span->before_ns : before->second);
    for (const uint32_t slot : plan.steps()[span->step].arguments) {
      const auto at = came.find(key(slot, span->device));
      // What is said to have come after the end was noted late.
      if (at != came.end() && at->second < end) start = std::max(start, at->second);
    }
    out.computations.push_back({first_device + span->device, plan.steps()[span->step].node, std::min(start, end), end});
  }
  std::stable_sort(out.computations.begin(), out.computations.end(), [](const auto& a, const auto& b) {
    return std::tie(a.device, a.end_ns) < std::tie(b.device, b.end_ns);
  });
  for (size_t i = 1; i < out.computations.size(); ++i) {
    const wire::TimedComputation& before = out.computations[i - 1];
    wire::TimedComputation& one = out.computations[i];
    if (one.device == before.device) one.start_ns = std::max(one.start_ns, before.end_ns);
  }
  out.missing = static_cast<uint32_t>(computations_ - out.computations.size());
  return out;
}

wire::Times RunTimes::Collect(const plan::Plan& plan, uint32_t first_device) const {
  wire::Times times;
  times.nodes = plan.description().nodes;
  for (const std::shared_ptr<Run>& run : runs_) times.runs.push_back(Collect(*run, plan, first_device));
  return times;
}

}  // namespace pathways::worker
