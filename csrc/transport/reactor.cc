#include "csrc/transport/reactor.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "csrc/base/log.h"

namespace pathways::transport {
namespace {

// What epoll tells: kWakeId, or an entry's id, doubled; one more for its monitor's descriptor.
constexpr uint64_t kWakeId = 0;
constexpr int kSleepMsMax = 60 * 1000;
// A thread kept busy by some sockets looks at the others' descriptors once in this many turns.
constexpr int kPollEveryTurns = 8;

thread_local const Reactor* current_reactor = nullptr;

std::string SystemError(const std::string& what) { return what + ": " + std::strerror(errno); }

}  // namespace

struct Reactor::Entry final : Socket::Waker, std::enable_shared_from_this<Reactor::Entry> {
  // Socket::Waker
  void Poke(Socket&) override {
    {
      std::lock_guard lock(reactor->mutex_);
      reactor->poked_.push_back(shared_from_this());
    }
    reactor->Wake();
  }
  void Detach(Socket& socket) override { reactor->Remove(socket); }

  Reactor* reactor = nullptr;
  uint64_t id = 0;
  std::shared_ptr<Socket> socket;
  SocketHandler* handler = nullptr;
  // Held by the loop during the entry's turn, so that Remove can wait for a callback to end.
  std::mutex turn;
  std::atomic<bool> removed{false};
  // Used by the reactor's thread only:
  bool listed = false;        // in active_
  bool monitor_ready = true;  // has input, as far as known
  std::vector<PeerEvent> events;
};

Reactor::Reactor(ReactorOptions options) : options_(std::move(options)), batch_(std::max<size_t>(1, options_.batch)) {}

Reactor::~Reactor() {
  Stop();
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

Result<std::unique_ptr<Reactor>> Reactor::Start(ReactorOptions options) {
  std::unique_ptr<Reactor> reactor(new Reactor(std::move(options)));
  PW_RETURN_IF_ERROR(reactor->Init());
  return reactor;
}

Status Reactor::Init() {
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (epoll_fd_ < 0 || wake_fd_ < 0 || ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) != 0) {
    return ResourceExhausted(SystemError("cannot start reactor '" + options_.name + "'"));
  }
  // Signals belong to the program's own threads (Python handles them on its main thread).
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return OkStatus();
}

bool Reactor::OnThread() const { return current_reactor == this; }

std::chrono::milliseconds Reactor::CpuTime() const {
  clockid_t clock{};
  timespec used{};
  // A reactor that was started has a thread until Stop, and the thread a clock.
  if (pthread_getcpuclockid(const_cast<std::thread&>(thread_).native_handle(), &clock) == 0) {
    (void)clock_gettime(clock, &used);
  }
  return std::chrono::milliseconds(used.tv_sec * 1000 + used.tv_nsec / 1'000'000);
}

Status Reactor::Add(std::shared_ptr<Socket> socket, SocketHandler* handler) {
  auto entry = std::make_shared<Entry>();
  entry->reactor = this;
  entry->socket = std::move(socket);
  entry->handler = handler;
  PW_RETURN_IF_ERROR(entry->socket->SetWaker(entry));
  bool stopped = false;
  {
    std::lock_guard lock(mutex_);
    stopped = stopping_.load();
    if (!stopped) {
      entry->id = next_entry_++;
      entries_.emplace(entry->id, entry);
    }
  }
  if (stopped) {
    (void)entry->socket->SetWaker(nullptr);
    return Unavailable("cannot add a socket: reactor '" + options_.name + "' has stopped");
  }
  if (Status status = Watch(*entry); !status.ok()) {
    Remove(*entry->socket);
    return status;
  }
  entry->Poke(*entry->socket);  // input may have come before anybody listened
  return OkStatus();
}

Status Reactor::Watch(const Entry& entry) {
  for (int fd : {entry.socket->fd(), entry.socket->monitor_fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = 2 * entry.id + (fd == entry.socket->monitor_fd() ? 1 : 0);
    if (fd >= 0 && ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
      return ResourceExhausted(SystemError("cannot add a socket to reactor '" + options_.name + "'"));
    }
  }
  return OkStatus();
}

void Reactor::Remove(Socket& socket) {
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, candidate] : entries_) {
      if (candidate->socket.get() == &socket) entry = candidate;
    }
    if (entry == nullptr) return;
    entries_.erase(entry->id);
  }
  entry->removed.store(true);
  if (!OnThread()) std::lock_guard turn(entry->turn);  // wait for the current callback, if any
  for (int fd : {socket.fd(), socket.monitor_fd()}) {
    if (fd >= 0) ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  }
  (void)socket.SetWaker(nullptr);  // last: from here on the socket may be closed, and its descriptors used again
}

void Reactor::Post(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_.load()) return;
    tasks_.push_back(std::move(task));
  }
  Wake();
}

Reactor::TimerId Reactor::AddTimer(Clock::duration delay, Clock::duration period, Task task) {
  TimerId id = 0;
  {
    std::lock_guard lock(mutex_);
    id = next_timer_++;
    timers_.emplace(Clock::now() + delay, Timer{id, period, std::move(task)});
  }
  Wake();
  return id;
}

void Reactor::CancelTimer(TimerId id) {
  Task dropped;  // destroyed after the lock
  std::lock_guard lock(mutex_);
  if (id == running_timer_) running_timer_cancelled_ = true;
  for (auto at = timers_.begin(); at != timers_.end(); ++at) {
    if (at->second.id != id) continue;
    dropped = std::move(at->second.task);
    timers_.erase(at);
    return;
  }
}

void Reactor::Stop() {
  if (OnThread()) {
    logging::Error("", "reactor '" + options_.name + "' cannot be stopped on its own thread");
    std::abort();
  }
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
  }
  Wake();
  if (thread_.joinable()) thread_.join();
  std::vector<Task> tasks;
  std::vector<std::shared_ptr<Entry>> poked;
  std::multimap<Clock::time_point, Timer> timers;
  std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    poked.swap(poked_);
    timers.swap(timers_);
    entries.swap(entries_);
  }
  for (auto& [id, entry] : entries) (void)entry->socket->SetWaker(nullptr);
  active_.clear();
}

void Reactor::Wake() {
  posted_.store(true);
  if (!sleeping_.load() || !sleeping_.exchange(false)) return;
  const uint64_t one = 1;
  // Only fails when the counter is full, and then the thread wakes anyway.
  [[maybe_unused]] ssize_t written = ::write(wake_fd_, &one, sizeof(one));
}

void Reactor::Loop() {
  current_reactor = this;
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  for (int turns = 1; !stopping_.load(); ++turns) {
    posted_.store(false);
    RunTasks();
    RunTimers();
    CollectPoked();
    RunActive();
    if (active_.empty()) {
      Sleep();
      turns = 0;
    } else if (turns % kPollEveryTurns == 0) {
      Poll(0);
    }
  }
}

void Reactor::RunTasks() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) {
    if (stopping_.load()) return;
    task();
    task = nullptr;
  }
}

void Reactor::RunTimers() {
  const Clock::time_point now = Clock::now();
  for (;;) {
    Timer timer;
    Clock::time_point due;
    {
      std::lock_guard lock(mutex_);
      auto first = timers_.begin();
      if (first == timers_.end() || first->first > now || stopping_.load()) return;
      due = first->first;
      timer = std::move(first->second);
      timers_.erase(first);
      running_timer_ = timer.id;
      running_timer_cancelled_ = false;
    }
    timer.task();
    std::lock_guard lock(mutex_);
    running_timer_ = 0;
    if (timer.period <= Clock::duration::zero() || running_timer_cancelled_) continue;
    // A late timer skips the beats it missed.
    due = std::max(due + timer.period, now);
    timers_.emplace(due > now ? due : now + timer.period, std::move(timer));
  }
}

void Reactor::List(std::shared_ptr<Entry> entry) {
  if (entry->listed) return;
  entry->listed = true;
  active_.push_back(std::move(entry));
}

void Reactor::CollectPoked() {
  std::vector<std::shared_ptr<Entry>> poked;
  {
    std::lock_guard lock(mutex_);
    poked.swap(poked_);
  }
  for (auto& entry : poked) List(std::move(entry));
}

void Reactor::RunActive() {
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    std::shared_ptr<Entry> entry = std::move(active_[i]);
    if (!stopping_.load() && RunEntry(*entry)) {
      active_[kept++] = std::move(entry);
    } else {
      entry->listed = false;
    }
  }
  active_.resize(kept);
}

// One turn of one socket; true when it may have more.
bool Reactor::RunEntry(Entry& entry) {
  std::lock_guard turn(entry.turn);
  if (entry.removed.load()) return false;
  Socket& socket = *entry.socket;
  // Peer events first, but told last: a lost peer's messages were queued before its loss was reported, so once the
  // socket has been seen empty they have all been delivered.
  if (std::exchange(entry.monitor_ready, false) || socket.HasPeerEvents()) socket.ReceivePeerEvents(&entry.events);
  const size_t ripe = entry.events.size();
  const size_t count = socket.ReceiveBatch(batch_);
  for (size_t i = 0; i < count; ++i) {
    entry.handler->OnMessage(socket, batch_[i].peer, batch_[i].frames);
    batch_[i].frames.clear();
    if (entry.removed.load()) {
      for (size_t j = i + 1; j < count; ++j) batch_[j].frames.clear();
      return false;
    }
  }
  if (count == batch_.size()) return true;
  std::vector<PeerEvent> events(std::make_move_iterator(entry.events.begin()),
                                std::make_move_iterator(entry.events.begin() + ripe));
  entry.events.erase(entry.events.begin(), entry.events.begin() + ripe);
  for (const PeerEvent& event : events) {
    if (entry.removed.load()) return false;
    entry.handler->OnPeerEvent(socket, event);
  }
  // Learning about new peers may have read further events meanwhile.
  return socket.HasPeerEvents() || !entry.events.empty();
}

// Waits for descriptors and lists their sockets; false when none was ready.
bool Reactor::Poll(int timeout_ms) {
  std::array<epoll_event, 32> events;
  const int count = ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kWakeId) {
      uint64_t value = 0;
      [[maybe_unused]] ssize_t got = ::read(wake_fd_, &value, sizeof(value));
      continue;
    }
    std::shared_ptr<Entry> entry;
    {
      std::lock_guard lock(mutex_);
      if (auto at = entries_.find(events[i].data.u64 / 2); at != entries_.end()) entry = at->second;
    }
    if (entry == nullptr) continue;
    if (events[i].data.u64 % 2 == 1) entry->monitor_ready = true;
    List(std::move(entry));
  }
  return count > 0;
}

int Reactor::SleepMilliseconds() {
  std::lock_guard lock(mutex_);
  if (timers_.empty()) return kSleepMsMax;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kSleepMsMax));
}

void Reactor::Sleep() {
  if (options_.spin.count() > 0) {
    const Clock::time_point until = Clock::now() + options_.spin;
    do {
      if (posted_.load() || Poll(0)) return;
    } while (Clock::now() < until);
  }
  const int timeout_ms = SleepMilliseconds();
  sleeping_.store(true);
  if (!posted_.load()) Poll(timeout_ms);
  sleeping_.store(false);
}

}  // namespace pathways::transport
