// Reactor: one named thread that receives for several Sockets, runs tasks posted by other threads, and fires timers.
//
// Ownership: holds a reference to each added Socket; borrows handlers, which must live until Remove or Stop returns.
// Threads:   Add, Remove, Post, AddTimer, CancelTimer, Stop: any thread. Handlers, tasks and timers all run on the
//            reactor's own thread, one at a time, with no lock held; they must not block.
// Locks:     mutex_ guards the tables below; never held across a callback or a call of a Socket. A Socket calls in
//            under its own lock, so the order is socket, then reactor.
//
// Order: messages of one socket in arrival order; a peer's loss after every message received from it; tasks in the
// order posted. Each turn handles a bounded batch per socket, so that no socket starves tasks or other sockets.
#ifndef PTPATHWAYS_TRANSPORT_REACTOR_H_
#define PTPATHWAYS_TRANSPORT_REACTOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/transport/socket.h"

namespace pathways::transport {

class SocketHandler {
 public:
  virtual ~SocketHandler() = default;
  // `frames` may be moved from; what stays in it is discarded. `peer` is valid during the call.
  virtual void OnMessage(Socket& socket, std::string_view peer, Frames& frames) = 0;
  virtual void OnPeerEvent(Socket& /*socket*/, const PeerEvent& /*event*/) {}
};

struct ReactorOptions {
  std::string name = "pw-reactor";  // shown by top and gdb; the first 15 characters count
  // Looks for work this long before sleeping. Only for machines with a core to spare: on two cores it takes the core
  // that libzmq's I/O thread needs, and 20 us of it doubled the round trip between two processes.
  std::chrono::microseconds spin{0};
  size_t batch = 64;  // messages per socket and turn
};

class Reactor {
 public:
  using Task = std::function<void()>;
  using TimerId = uint64_t;
  using Clock = std::chrono::steady_clock;

  static Result<std::unique_ptr<Reactor>> Start(ReactorOptions options);
  ~Reactor();  // Stop

  Status Add(std::shared_ptr<Socket> socket, SocketHandler* handler);
  // When it returns, no callback for `socket` runs or will run (on the reactor's own thread: after the current one).
  void Remove(Socket& socket);

  // Runs `task` soon. After Stop it is dropped (destroyed, not run).
  void Post(Task task);
  // Runs `task` after `delay`, then every `period` if that is not zero.
  TimerId AddTimer(Clock::duration delay, Clock::duration period, Task task);
  void CancelTimer(TimerId id);

  bool OnThread() const;
  // How long the thread has used the processor. Any thread, before Stop.
  std::chrono::milliseconds CpuTime() const;
  // Ends the thread after its current callback; sockets are let go, not closed. Must not be called on the thread.
  void Stop();

 private:
  struct Entry;
  struct Timer {
    TimerId id;
    Clock::duration period;
    Task task;
  };

  explicit Reactor(ReactorOptions options);
  Status Init();
  Status Watch(const Entry& entry);
  void Wake();
  void Loop();
  void RunTasks();
  void RunTimers();
  void CollectPoked();
  void RunActive();
  bool RunEntry(Entry& entry);
  void List(std::shared_ptr<Entry> entry);
  bool Poll(int timeout_ms);
  int SleepMilliseconds();
  void Sleep();

  const ReactorOptions options_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  std::thread thread_;

  // The hand-shake of Wake and Sleep: each side writes its own flag, then reads the other's.
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> posted_{false};
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::vector<Task> tasks_ PW_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Entry>> poked_ PW_GUARDED_BY(mutex_);
  std::multimap<Clock::time_point, Timer> timers_ PW_GUARDED_BY(mutex_);
  TimerId next_timer_ PW_GUARDED_BY(mutex_) = 1;
  TimerId running_timer_ PW_GUARDED_BY(mutex_) = 0;
  bool running_timer_cancelled_ PW_GUARDED_BY(mutex_) = false;
  uint64_t next_entry_ PW_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries_ PW_GUARDED_BY(mutex_);

  // Used by the thread only:
  std::vector<std::shared_ptr<Entry>> active_;  // may have input; they run before the thread sleeps
  std::vector<Socket::Message> batch_;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_REACTOR_H_
