#include "csrc/collective/communicator.h"

#include <algorithm>
#include <utility>

#include "csrc/collective/plan.h"

namespace pathways::collective {
namespace {

// More launches than this are looked through for those that nobody is in any more.
constexpr size_t kLaunchesMax = 1024;

bool Contains(const std::vector<uint32_t>& items, uint32_t item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

bool HasHost(const Gang& gang, uint32_t host) {
  return std::any_of(gang.shards->begin(), gang.shards->end(), [&](const Place& place) { return place.host == host; });
}

}  // namespace

Communicator::Communicator(CommunicatorOptions options, dataplane::DataPlane* data)
    : options_(std::move(options)),
      lanes_(Lanes::Make({options_.cluster, options_.host, options_.shared_memory_bytes, options_.lane}, data)) {}

Communicator::~Communicator() {
  Stop(Cancelled("this host's collectives have stopped"));
  lanes_->Detach();
}

std::shared_ptr<Communicator::Launch> Communicator::LaunchOf(const std::shared_ptr<const Gang>& gang) {
  auto& launch = launches_[gang->launch];
  if (launch) return launch;
  launch = std::make_shared<Launch>();
  launch->gang = gang;
  for (const Place& place : *gang->shards) {
    if (place.host == options_.host) launch->devices.push_back(place.device);
  }
  if (!stopped_.ok()) Fail(*launch, stopped_);
  if (const auto at = aborted_.find(gang->run); at != aborted_.end()) Fail(*launch, at->second);
  for (const auto& [host, status] : lost_) {
    if (HasHost(*gang, host)) Fail(*launch, status);
  }
  std::shared_ptr<Launch> result = launch;
  if (launches_.size() > kLaunchesMax) {
    // Some of their devices never came, for example because the run was aborted.
    std::erase_if(launches_, [&](const auto& item) {
      return item.second != result && item.second->active == 0 && item.second->failed.load();
    });
  }
  return result;
}

void Communicator::Begin(int device, const std::shared_ptr<const Gang>& gang, uint32_t shard) {
  std::lock_guard lock(mutex_);
  Device& state = devices_[device];
  state.shard = shard;
  state.ordinal = 0;
  state.launch = LaunchOf(gang);
  ++state.launch->active;
}

void Communicator::End(int device) {
  std::lock_guard lock(mutex_);
  Device& state = devices_[device];
  if (!state.launch) return;
  const std::shared_ptr<Launch> launch = std::exchange(state.launch, nullptr);
  --launch->active;
  launch->left.push_back(static_cast<uint32_t>(device));
  if (launch->left.size() >= launch->devices.size()) launches_.erase(launch->gang->launch);
  for (const auto& [key, meeting] : meetings_) {
    if (meeting->launch == launch && !meeting->running && !WhoLeft(*launch, *meeting).ok())
      meeting->changed.notify_all();
  }
}

Status Communicator::WhoLeft(const Launch& launch, const Meeting& meeting) const {
  for (const uint32_t position : meeting.layout.local().positions) {
    const uint32_t device = meeting.layout.places[position].device;
    if (!Contains(launch.left, device)) continue;
    return Status(Code::kAborted, "collective " + std::to_string(meeting.op->number) + " of " + launch.gang->what +
                                      ": all devices of this host must take part, and device " +
                                      std::to_string(device) + " has ended the computation without it");
  }
  return OkStatus();
}

Status Communicator::Meet(int device, const hlo::CollectiveOp& op, std::span<const hlo::CollectiveOperand> operands) {
  UniqueLock lock(mutex_);
  const auto at = devices_.find(device);
  if (at == devices_.end() || !at->second.launch) {
    return FailedPrecondition("device " + std::to_string(device) + " must be in a gang to meet others in collective " +
                              std::to_string(op.number) + ", and is in none");
  }
  Device& state = at->second;
  const std::shared_ptr<Launch> launch = state.launch;
  const uint32_t ordinal = state.ordinal++;
  if (launch->failed.load(std::memory_order_relaxed)) return launch->status;
  auto layout = FindLayout(op, *launch->gang->shards, state.shard, options_.host);
  Status status = layout.status();
  if (status.ok() && layout->places[layout->position].device != static_cast<uint32_t>(device)) {
    status =
        Internal("shard " + std::to_string(state.shard) + " must run on device " +
                 std::to_string(layout->places[layout->position].device) + ", and runs on " + std::to_string(device));
  }
  if (!status.ok()) {
    Fail(*launch, status);
    return status;
  }
  const Part part{static_cast<uint32_t>(device), {layout->position, operands}};
  std::shared_ptr<Meeting>& slot = meetings_[{launch->gang->launch, ordinal, layout->group}];
  if (!slot) {
    slot = std::make_shared<Meeting>();
    slot->launch = launch;
    slot->op = &op;
    slot->layout = *std::move(layout);
    slot->ordinal = ordinal;
    slot->since = Clock::now();
  }
  const std::shared_ptr<Meeting> meeting = slot;
  if (meeting->op->number != op.number) {
    status = Internal(launch->gang->what + ": all devices must be at the same instruction, and device " +
                      std::to_string(device) + " is at collective " + std::to_string(op.number) + ", device " +
                      std::to_string(meeting->parts[0].device) + " at " + std::to_string(meeting->op->number));
    Fail(*launch, status);
    return status;
  }
  const auto place = std::lower_bound(meeting->parts.begin(), meeting->parts.end(), part,
                                      [](const Part& a, const Part& b) { return a.local.position < b.local.position; });
  meeting->parts.insert(place, part);
  if (meeting->parts.size() == meeting->layout.local().positions.size()) return Work(*meeting, lock);
  return Join(*meeting, lock);
}

Status Communicator::Join(Meeting& meeting, UniqueLock& lock) {
  Launch& launch = *meeting.launch;
  const auto deadline = meeting.since + options_.limit;
  while (!meeting.done) {
    if (meeting.running) {
      meeting.changed.wait(lock);
      continue;
    }
    if (Status left = WhoLeft(launch, meeting); !left.ok()) Fail(launch, left);
    if (launch.failed.load(std::memory_order_relaxed)) return launch.status;
    if (meeting.changed.wait_until(lock, deadline) == std::cv_status::no_timeout || meeting.running || meeting.done) {
      continue;
    }
    std::string missing;
    for (const uint32_t position : meeting.layout.local().positions) {
      const uint32_t device = meeting.layout.places[position].device;
      const bool here = std::any_of(meeting.parts.begin(), meeting.parts.end(),
                                    [&](const Part& part) { return part.device == device; });
      if (!here) missing += (missing.empty() ? "" : ", ") + std::to_string(device);
    }
    Fail(launch,
         DeadlineExceeded("collective " + std::to_string(meeting.op->number) + " of " + launch.gang->what +
                          " must be joined by all devices of this host within " +
                          std::to_string(options_.limit.count()) + " ms, and device " + missing + " did not arrive"));
  }
  return meeting.status;
}

Status Communicator::Work(Meeting& meeting, UniqueLock& lock) {
  Launch& launch = *meeting.launch;
  meeting.running = true;
  lock.unlock();
  Status status = Exchanged(meeting);
  lock.lock();
  meeting.status = status;
  meeting.done = true;
  const std::vector<Part>& parts = meeting.parts;
  if (!status.ok()) Fail(launch, status);
  if (parts.size() > 1) meeting.changed.notify_all();
  meetings_.erase({launch.gang->launch, meeting.ordinal, meeting.layout.group});
  return status;
}

Status Communicator::Exchanged(Meeting& meeting) {
  std::vector<LocalPart> parts;
  parts.reserve(meeting.parts.size());
  for (const Part& part : meeting.parts) parts.push_back(part.local);
  ExchangePlan plan;
  PW_RETURN_IF_ERROR(BuildPlan(*meeting.op, meeting.layout, parts, &plan).WithPrefix(meeting.launch->gang->what));
  ExchangeContext context;
  context.gang = meeting.launch->gang.get();
  context.number = meeting.op->number;
  context.ordinal = meeting.ordinal;
  context.device = meeting.layout.DeviceFor(meeting.layout.own);
  context.limit = options_.limit;
  context.spin = options_.spin;
  context.failed = &meeting.launch->failed;
  context.failure = [this, &meeting] {
    std::lock_guard lock(mutex_);
    return meeting.launch->status;
  };
  Exchange exchange(plan, *lanes_, std::move(context));
  const auto show = [&](const Exchange* running) {
    std::lock_guard lock(mutex_);
    meeting.exchange = running;
  };
  show(&exchange);
  Status status = exchange.Run();
  show(nullptr);
  bytes_sent_.fetch_add(exchange.bytes_sent(), std::memory_order_relaxed);
  return status;
}

void Communicator::Fail(Launch& launch, const Status& status) {
  if (launch.failed.load(std::memory_order_relaxed)) return;
  launch.status = status;
  launch.failed.store(true, std::memory_order_release);
  for (auto at = meetings_.begin(); at != meetings_.end();) {
    Meeting& meeting = *at->second;
    if (meeting.launch.get() != &launch) {
      ++at;
      continue;
    }
    meeting.changed.notify_all();
    // One that runs ends itself; the others never will.
    at = meeting.running ? std::next(at) : meetings_.erase(at);
  }
  lanes_->RingAll();
}

void Communicator::HostLost(uint32_t host, const Status& status) {
  std::lock_guard lock(mutex_);
  lost_[host] = status;
  const auto launches = launches_;
  for (const auto& [id, launch] : launches) {
    if (HasHost(*launch->gang, host)) Fail(*launch, status);
  }
}

void Communicator::Abort(uint64_t run, const Status& status) {
  std::lock_guard lock(mutex_);
  if (aborted_.emplace(run, status).second) aborted_order_.push_back(run);
  if (aborted_order_.size() > kAbortedMax) {
    aborted_.erase(aborted_order_.front());
    aborted_order_.pop_front();
  }
  for (const auto& [id, launch] : launches_) {
    if (launch->gang->run == run) Fail(*launch, status);
  }
}

void Communicator::Stop(const Status& status) {
  std::lock_guard lock(mutex_);
  if (stopped_.ok()) stopped_ = status;
  for (const auto& [id, launch] : launches_) Fail(*launch, status);
}

std::vector<Stall> Communicator::Stalls(std::chrono::milliseconds older_than) const {
  std::vector<Stall> stalls;
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (const auto& [key, meeting] : meetings_) {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - meeting->since);
    if (age < older_than || meeting->parts.empty()) continue;
    Stall stall;
    stall.run = meeting->launch->gang->run;
    stall.launch = meeting->launch->gang->launch;
    stall.what = meeting->launch->gang->what;
    stall.device = static_cast<int>(meeting->parts[0].device);
    stall.op = meeting->op->number;
    stall.age = age;
    std::vector<uint32_t> missing;
    if (!meeting->running) {
      missing.push_back(options_.host);
    } else if (meeting->exchange != nullptr) {
      missing = meeting->exchange->Missing();
    }
    for (const uint32_t host : missing) {
      stall.waits_for_host = host;
      stalls.push_back(stall);
    }
  }
  return stalls;
}

}  // namespace pathways::collective
