// HostContext: what every part of a worker needs of its host: who it is, its devices and what they hold, its messages
// to the controller, its log.
//
// Ownership: owned by the engine, which outlives all parts; shares the plugin's client, owns the store.
// Threads:   Send, SendReply, Report, Here, Log, serving and the counts: any. The store is the engine's thread's. What
//            is left is constant after start, and what Joined sets after joining.
// Locks:     none.
#ifndef PTPATHWAYS_WORKER_HOST_CONTEXT_H_
#define PTPATHWAYS_WORKER_HOST_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/base/status.h"
#include "csrc/pjrt/client.h"
#include "csrc/store/object_store.h"
#include "csrc/transport/frame.h"
#include "csrc/transport/reactor.h"
#include "csrc/wire/bodies.h"
#include "csrc/worker/enqueue_ahead.h"

namespace pathways::worker {

// The way to the controller, which passes on what is for a client. Any thread.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual Status Send(transport::Frames frames) = 0;
  // This host is told to stop, so that a message which cannot be sent is no news.
  virtual bool ending() const = 0;
};

class HostContext {
 public:
  HostContext(std::string name, std::string platform, Outbox& outbox)
      : name_(std::move(name)), platform_(std::move(platform)), outbox_(outbox) {}

  // While the host starts. `limits`: bytes of each device; `client` may be null where nothing computes.
  void SetDevices(std::shared_ptr<pjrt::Client> client, std::vector<int64_t> limits);
  void SetEnqueueAhead(EnqueueAhead ahead) { enqueue_ahead_ = ahead; }
  void SetThread(transport::Reactor* engine) { engine_ = engine; }
  void Joined(std::string cluster, uint32_t number, uint32_t first_device);
  // The controller hears of this host, from now on or no longer.
  void SetServing(bool serving) { serving_ = serving; }

  const std::string& name() const { return name_; }
  const std::string& platform() const { return platform_; }
  // Devices compute in the host's memory, and do not reach other hosts.
  bool is_cpu() const { return platform_ == "cpu"; }
  const std::string& cluster() const { return cluster_; }
  uint32_t number() const { return number_; }
  uint32_t first_device() const { return first_device_; }
  size_t device_count() const { return device_count_; }
  EnqueueAhead enqueue_ahead() const { return enqueue_ahead_; }
  // What was enqueued on a value that fails fails, too; else it must be kept from being run, or from being believed.
  bool hands_errors_on() const { return enqueue_ahead_ == EnqueueAhead::kAlways; }
  const std::shared_ptr<pjrt::Client>& client() const { return client_; }
  store::ObjectStore& store() const { return *store_; }
  // The engine's thread, for callbacks of others.
  transport::Reactor& engine() const { return *engine_; }

  bool serving() const { return serving_; }

  // The local index of a device of the cluster; INVALID_ARGUMENT for another host's.
  Result<size_t> LocalDevice(uint32_t device) const;
  // Some device has a limit.
  bool MemoryIsBounded() const;

  template <typename Body>
  void Send(const Body& body) const {
    SendHead(wire::Encode(body));
  }
  // An answer and its payload.
  Status SendReply(const wire::Reply& reply, std::string payload) const;
  // Says that something was not sent, unless this host ends.
  void Report(const Status& sent) const;
  void Log(const std::string& line, logging::Level level = logging::Level::kWarning) const;
  // With this host's name.
  Status Here(const Status& status) const { return status.WithPrefix("host '" + name_ + "'"); }

  // Notes what the store holds, for other threads.
  void Count();
  uint64_t live_buffers() const { return live_buffers_; }
  uint64_t live_bytes() const { return static_cast<uint64_t>(live_bytes_.load()); }

 private:
  void SendHead(std::string head) const;

  const std::string name_;
  const std::string platform_;
  Outbox& outbox_;
  std::shared_ptr<pjrt::Client> client_;
  size_t device_count_ = 0;
  EnqueueAhead enqueue_ahead_ = EnqueueAhead::kAlways;
  std::unique_ptr<store::ObjectStore> store_;
  transport::Reactor* engine_ = nullptr;
  std::string cluster_;
  uint32_t number_ = 0;
  uint32_t first_device_ = 0;
  std::atomic<bool> serving_{false};
  std::atomic<uint64_t> live_buffers_{0};
  std::atomic<int64_t> live_bytes_{0};
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_HOST_CONTEXT_H_
