#include "csrc/sim/cluster.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <future>

namespace pathways::sim {
namespace {

// How long gangs may stand still before somebody looks for a circle, and how often.
constexpr int64_t kDeadlockCheckNs = 500'000'000;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Status ClusterSpec::Check() const {
  const auto within = [](const char* what, uint64_t value, uint64_t most) {
    if (value >= 1 && value <= most) return OkStatus();
    return InvalidArgument(std::string("expected ") + what + " of a simulated cluster from 1 to " +
                           std::to_string(most) + ", got " + std::to_string(value));
  };
  PW_RETURN_IF_ERROR(within("hosts", hosts, 16384));
  PW_RETURN_IF_ERROR(within("devices_per_host", devices_per_host, 1024));
  PW_RETURN_IF_ERROR(within("islands", islands, hosts));
  if (memory_bytes < 0)
    return InvalidArgument("expected memory of at least 0 bytes, got " + std::to_string(memory_bytes));
  for (const CostRule& rule : compiler.costs) {
    if (!(rule.cost_us >= 0)) return InvalidArgument("expected a cost of at least 0 us for '" + rule.pattern + "'");
  }
  return OkStatus();
}

HostSpec ClusterSpec::MakeHost(uint32_t host) const {
  HostSpec made;
  made.name = HostName(host);
  // As evenly as it goes, neighbours together.
  made.island = "island" + std::to_string(uint64_t{host} * islands / hosts);
  made.build = build;
  made.devices = devices_per_host;
  made.memory_limit_bytes = memory_bytes;
  return made;
}

Cluster::Cluster(std::shared_ptr<controller::Controller> controller, ClusterSpec spec)
    : controller_(std::move(controller)), spec_(std::move(spec)), world_(spec_.compiler, spec_.network) {
  world_.compile_ns = spec_.compile_ns;
}

Result<std::unique_ptr<Cluster>> Cluster::Start(std::shared_ptr<controller::Controller> controller, ClusterSpec spec,
                                                std::chrono::milliseconds timeout) {
  PW_RETURN_IF_ERROR(spec.Check());
  std::unique_ptr<Cluster> cluster(new Cluster(std::move(controller), std::move(spec)));
  Cluster* const raw = cluster.get();
  for (uint32_t i = 0; i < raw->spec_.hosts; ++i) {
    raw->connections_.push_back(
        raw->controller_->AttachLocalHost([raw, i](std::string head, std::vector<Payload> payloads) {
          raw->Push({i, std::move(head), std::move(payloads)});
        }));
    raw->hosts_.push_back(std::make_unique<Host>(
        &raw->world_, raw->spec_.MakeHost(i), [raw, i](std::string head, std::vector<Payload> payloads) {
          raw->controller_->FromLocal(raw->connections_[i], std::move(head), std::move(payloads));
        }));
  }
  raw->thread_ = std::thread([raw] { raw->Loop(); });
  raw->Call([raw] {
    for (const std::unique_ptr<Host>& host : raw->hosts_) host->Join();
  });
  PW_RETURN_IF_ERROR(raw->controller_->WaitForHosts(raw->spec_.hosts, timeout));
  // The controller counts a host when it has answered it; a call later the answer has been read.
  Status refused;
  raw->Call([] {});
  raw->Call([raw, &refused] {
    for (const std::unique_ptr<Host>& host : raw->hosts_) {
      if (!host->joined() && refused.ok()) {
        refused = host->last_refusal().ok() ? Internal("a simulated host was not admitted") : host->last_refusal();
      }
    }
  });
  PW_RETURN_IF_ERROR(refused);
  return cluster;
}

Cluster::~Cluster() { Close(); }

void Cluster::Push(Message message) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
    wake = sleeping_;
    sleeping_ = false;
  }
  if (wake) changed_.notify_one();
}

bool Cluster::Call(const std::function<void()>& task) {
  std::promise<void> done;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return false;
    tasks_.push_back([&task, &done] {
      task();
      done.set_value();
    });
    sleeping_ = false;
  }
  changed_.notify_one();
  done.get_future().wait();
  return true;
}

void Cluster::Loop() {
  pthread_setname_np(pthread_self(), "pw-sim");
  prctl(PR_SET_TIMERSLACK, 1000UL);  // computations of tens of microseconds should end on time
  std::vector<Message> messages;
  std::vector<std::function<void()>> tasks;
  for (;;) {
    {
      UniqueLock lock(mutex_);
      while (inbox_.empty() && tasks_.empty() && !stop_) {
        int64_t due = world_.timeline.next();
        if (world_.fleet.waiting_gangs() > 0) due = std::min(due, next_check_);
        const int64_t now = Now();
        if (due <= now) break;
        sleeping_ = true;
        if (due == kNever) {
          changed_.wait(lock);
        } else {
          changed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(due)));
        }
        sleeping_ = false;
      }
      messages.swap(inbox_);
      tasks.swap(tasks_);
      if (stop_ && tasks.empty()) return;
    }
    world_.timeline.SetNow(Now());
    Work(messages);
    messages.clear();
    for (const auto& task : tasks) task();
    tasks.clear();
  }
}

void Cluster::Work(std::vector<Message>& messages) {
  for (const Message& message : messages) {
    world_.timeline.SetNow(Now());
    hosts_[message.host]->OnMessage(message.head, message.payloads);
  }
  messages_ += messages.size();
  world_.timeline.RunDue(Now());
  CheckForDeadlock(Now());
  for (DoneReport* report : std::exchange(world_.news, {})) report->Flush();
}

void Cluster::CheckForDeadlock(int64_t now) {
  if (now < next_check_) return;
  next_check_ = now + kDeadlockCheckNs;
  // Where anything ends, nobody waits for ever yet.
  const bool moves = world_.fleet.ended() != ended_at_last_check_;
  ended_at_last_check_ = world_.fleet.ended();
  if (moves || world_.fleet.waiting_gangs() == 0) return;
  if (Status found = world_.fleet.BreakDeadlock(); !found.ok()) deadlocks_.emplace_back(found.message());
}

void Cluster::SetCost(const std::string& pattern, double cost_us) {
  Call([&] { world_.compiler.AddRule({pattern, cost_us}); });
}

Status Cluster::LoseHost(uint32_t host, const std::string& reason) {
  if (host >= spec_.hosts) {
    return NotFound("expected a host below " + std::to_string(spec_.hosts) + ", got " + std::to_string(host));
  }
  bool was_alive = false;
  Call([&] {
    was_alive = hosts_[host]->alive();
    hosts_[host]->Die();
  });
  if (!was_alive) return NotFound("host " + std::to_string(host) + " is gone already");
  controller_->HostExited(ClusterSpec::HostName(host), reason);
  return OkStatus();
}

Trace Cluster::TakeTrace(bool clear) {
  Trace copy;
  Call([&] {
    copy = world_.trace;
    if (clear) world_.trace.Clear();
  });
  return copy;
}

ClusterStats Cluster::Stats() {
  ClusterStats stats;
  Call([&] {
    stats.enqueued = world_.fleet.enqueued();
    stats.last_enqueue_ns = world_.fleet.last_enqueue();
    stats.messages = messages_;
    stats.waiting_gangs = world_.fleet.waiting_gangs();
    for (const std::unique_ptr<Host>& host : hosts_) {
      stats.buffers += host->buffer_count();
      stats.bytes += host->bytes_used();
      if (!host->last_refusal().ok()) stats.last_refusal = host->last_refusal().ToString();
    }
    stats.intervals_dropped = world_.trace.dropped();
    stats.deadlocks = deadlocks_;
  });
  return stats;
}

void Cluster::Close() {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  // First nobody speaks to the hosts any more, then they end.
  for (const controller::Connection& connection : connections_) controller_->DetachLocal(connection);
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    sleeping_ = false;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace pathways::sim
