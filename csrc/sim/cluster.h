// Cluster: simulated hosts of a real controller, in real time. What a client sends them costs what it costs with real
// hosts, but for the sockets; only the devices' work is made up.
//
// Ownership: owns hosts and their thread; shares the controller, which should be closed first.
// Threads:   one, "pw-sim", on which all hosts and devices live. The controller's threads only put messages aside.
//            Every public method may be called from any other thread.
// Locks:     mutex_ guards the inbox, and is taken under the controller's lock; never held while calling out.
#ifndef PTPATHWAYS_SIM_CLUSTER_H_
#define PTPATHWAYS_SIM_CLUSTER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/thread_annotations.h"
#include "csrc/controller/controller.h"
#include "csrc/sim/host.h"

namespace pathways::sim {

struct ClusterSpec {
  uint32_t hosts = 1;
  uint32_t devices_per_host = 1;
  uint32_t islands = 1;                      // hosts are divided into so many, neighbours together
  int64_t memory_bytes = int64_t{16} << 30;  // per device
  int64_t compile_ns = 0;
  CompilerOptions compiler;
  NetworkOptions network;
  std::string build;  // package version

  // INVALID_ARGUMENT naming the field.
  Status Check() const;
  HostSpec MakeHost(uint32_t host) const;
  static std::string HostName(uint32_t host) { return "host" + std::to_string(host); }
};

struct ClusterStats {
  uint64_t enqueued = 0;        // computations put into device queues, so far
  int64_t last_enqueue_ns = 0;  // when the last one was, on the steady clock (Python's time.monotonic_ns)
  uint64_t messages = 0;        // taken from the controller
  size_t waiting_gangs = 0;
  size_t buffers = 0;  // on all hosts
  int64_t bytes = 0;
  uint64_t intervals_dropped = 0;
  std::vector<std::string> deadlocks;  // found and broken
  std::string last_refusal;
};

class Cluster {
 public:
  // Joins all hosts; they are members when it returns.
  static Result<std::unique_ptr<Cluster>> Start(std::shared_ptr<controller::Controller> controller, ClusterSpec spec,
                                                std::chrono::milliseconds timeout);
  ~Cluster();

  const ClusterSpec& spec() const { return spec_; }
  // Of functions registered from now on.
  void SetCost(const std::string& pattern, double cost_us);
  // The host stops in the middle of everything. NOT_FOUND when there is none or it is gone.
  Status LoseHost(uint32_t host, const std::string& reason);
  Trace TakeTrace(bool clear);
  ClusterStats Stats();

  void Close();

 private:
  struct Message {
    uint32_t host;
    std::string head;
    std::vector<Payload> payloads;
  };

  Cluster(std::shared_ptr<controller::Controller> controller, ClusterSpec spec);
  void Loop();
  void Work(std::vector<Message>& messages);
  void CheckForDeadlock(int64_t now);
  void Push(Message message);
  // Runs `task` on the thread, and waits. False when the cluster is closed.
  bool Call(const std::function<void()>& task);

  const std::shared_ptr<controller::Controller> controller_;
  const ClusterSpec spec_;
  std::vector<controller::Connection> connections_;

  // Owned by the thread:
  World world_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::string> deadlocks_;
  uint64_t messages_ = 0;
  int64_t next_check_ = 0;
  uint64_t ended_at_last_check_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> inbox_ PW_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> tasks_ PW_GUARDED_BY(mutex_);
  bool sleeping_ PW_GUARDED_BY(mutex_) = false;
  bool stop_ PW_GUARDED_BY(mutex_) = false;
  bool closed_ PW_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_CLUSTER_H_
