#include "csrc/client/runs.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "csrc/base/waits.h"
#include "csrc/client/waiting.h"

namespace pathways::client {
namespace {

constexpr char kRunsAhead[] = "earlier runs: as many as may be under way have not finished";

// The argument at `position` as the message names it; the shards of one that is no whole buffer are listed there.
uint64_t NameArgument(std::span<const std::vector<Shard>> arguments, size_t position, wire::Run& run) {
  const size_t shards = arguments.size();
  const Shard& first = arguments[0][position];
  bool uniform = first.index == 0 && first.buffer->devices().size() == shards;
  for (size_t shard = 1; shard < shards && uniform; ++shard) {
    const Shard& other = arguments[shard][position];
    uniform = other.buffer == first.buffer && other.index == shard;
  }
  if (uniform) return first.buffer->id();
  const uint64_t name = wire::kAssembledBit | (run.assembled.size() / (2 * shards));
  for (const std::vector<Shard>& row : arguments) {
    run.assembled.push_back(row[position].buffer->id());
    run.assembled.push_back(row[position].index);
  }
  return name;
}

}  // namespace

bool PendingRun::Needs(const Loss& loss) const {
  if (!hosts) return loss.Covers(host);
  return std::any_of(hosts->begin(), hosts->end(), [&](uint32_t each) { return loss.Covers(each); });
}

Result<RunResult> Runs::Run(const std::shared_ptr<Function>& function, const RunArguments& arguments) {
  const FunctionSpec& spec = function->spec();
  const size_t shards = arguments.devices.size();
  if (shards == 0 || (arguments.arguments.size() != shards && !arguments.arguments.empty())) {
    return InvalidArgument("expected one row of arguments per device, got " +
                           std::to_string(arguments.arguments.size()) + " for " + std::to_string(shards) + " devices");
  }
  PW_ASSIGN_OR_RETURN(const uint32_t host, functions_.EnsureRegistered(*function, arguments.devices[0]));
  thread_local wire::Run spare;  // any, with the memory of an earlier run's arrays
  wire::Run run = std::move(spare);
  run.arguments.clear();
  run.assembled.clear();
  run.run = core_.MintIds();
  run.function = function->id();
  run.output_count = static_cast<uint32_t>(spec.outputs.size());
  run.first_output = core_.MintIds(std::max<uint32_t>(run.output_count, 1));
  run.devices.assign(arguments.devices.begin(), arguments.devices.end());
  run.donated.assign(arguments.donated.begin(), arguments.donated.end());
  for (const std::shared_ptr<LogicalBuffer>& buffer : arguments.whole) run.arguments.push_back(buffer->id());
  const size_t positions = arguments.arguments.empty() ? 0 : arguments.arguments[0].size();
  run.arguments.reserve(run.arguments.size() + positions);
  for (size_t position = 0; position < positions; ++position) {
    run.arguments.push_back(NameArgument(arguments.arguments, position, run));
  }
  RunResult result;
  result.done = Event::Make();
  PW_RETURN_IF_ERROR(Enter(run.run, {result.done, host, function->description(), function->GangHosts()}, true));
  result.outputs.reserve(spec.outputs.size());
  for (size_t k = 0; k < spec.outputs.size(); ++k) {
    result.outputs.push_back(
        std::make_shared<LogicalBuffer>(core_.Keep(), run.first_output + k, run.devices, spec.outputs[k], result.done));
  }
  PW_RETURN_IF_ERROR(Send(run, result.done));
  spare = std::move(run);
  return result;
}

bool Runs::HasRoom(size_t limit) const { return runs_.size() < limit || core_.closed || !core_.controller_lost.ok(); }

void Runs::AwaitRoom(UniqueLock& lock) {
  const size_t window = core_.options.window_runs;
  if (HasRoom(window)) return;
  ++waiting_;
  WaitForRoom(lock, room_, kRunsAhead, [&]() PW_REQUIRES(core_.mutex) { return HasRoom(Reopened()); });
  --waiting_;
}

void Runs::TellRoom() {
  if (waiting_ > 0 && HasRoom(Reopened())) room_.notify_all();
}

Status Runs::CheckAlive(const PendingRun& run) const {
  PW_RETURN_IF_ERROR(core_.CheckOpen());
  const std::span<const uint32_t> hosts = run.hosts ? std::span(*run.hosts) : std::span(&run.host, 1);
  for (const uint32_t host : hosts) {
    if (const Status alive = core_.hosts.CheckAlive(host); !alive.ok()) {
      return alive.WithPrefix(*run.what + " cannot run");
    }
  }
  return OkStatus();
}

Status Runs::Enter(uint64_t run, PendingRun pending, bool waits) {
  UniqueLock lock(core_.mutex);
  if (waits) AwaitRoom(lock);
  PW_RETURN_IF_ERROR(CheckAlive(pending));
  runs_[run] = std::move(pending);
  return OkStatus();
}

void Runs::AwaitWindow() {
  UniqueLock lock(core_.mutex);
  AwaitRoom(lock);
}

void Runs::End(uint64_t run, const std::shared_ptr<Event>& done, const Status& status) {
  {
    std::lock_guard lock(core_.mutex);
    runs_.erase(run);
    TellRoom();
  }
  core_.changed.notify_all();
  done->Set(status);
}

void Runs::OnDone(const wire::Done& done) {
  std::vector<std::pair<std::shared_ptr<Event>, const Status*>> finished;
  finished.reserve(done.outcomes.size());
  {
    std::lock_guard lock(core_.mutex);
    for (const wire::RunOutcome& outcome : done.outcomes) {
      // One outcome a run: the controller waits for all parts of a gang, or reports the first that failed.
      auto node = runs_.extract(outcome.run);
      if (!outcome.status.ok() && failed_.ok()) failed_ = outcome.status;
      if (!node.empty()) finished.emplace_back(std::move(node.mapped().done), &outcome.status);
    }
    TellRoom();
  }
  core_.changed.notify_all();
  for (auto& [event, status] : finished) event->Set(*status);
}

void Runs::Fail(const Loss& loss, Endings& ended) {
  std::erase_if(runs_, [&](const auto& entry) PW_REQUIRES(core_.mutex) {
    const PendingRun& run = entry.second;
    if (!run.Needs(loss)) return false;
    Status failure = loss.closed ? loss.reason : loss.reason.WithPrefix(*run.what + " did not finish");
    if (!loss.closed && failed_.ok()) failed_ = failure;
    ended.emplace_back(run.done, std::move(failure));
    return true;
  });
  TellRoom();
}

void Runs::List(std::vector<PendingItem>& out) const {
  for (const auto& [id, run] : runs_) {
    out.push_back({"run", *run.what, run.hosts ? *run.hosts : std::vector<uint32_t>{run.host}, run.since_ms});
  }
}

Status Runs::TakeFailure() {
  std::lock_guard lock(core_.mutex);
  return std::exchange(failed_, OkStatus());
}

void Runs::NoteFailure(const Status& status) {
  std::lock_guard lock(core_.mutex);
  if (failed_.ok()) failed_ = status;
}

Status Runs::Drain(std::chrono::milliseconds timeout) {
  const waits::Entry entry("everything that was submitted");
  UniqueLock lock(core_.mutex);
  const bool idle = core_.changed.wait_for(lock, timeout,
                                           [this]() PW_REQUIRES(core_.mutex) { return runs_.empty() || core_.closed; });
  if (idle) return core_.controller_lost;
  std::set<std::string> names;
  for (const auto& [id, run] : runs_) names.insert(core_.hosts[run.host].name);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return DeadlineExceeded("expected all runs to finish within " + std::to_string(timeout.count()) + " ms, got " +
                          std::to_string(runs_.size()) + " unfinished on " + list);
}

}  // namespace pathways::client
