// Controller: ClusterState with sockets, a clock and a lock around it. One per cluster, embedded in the client's
// process or a daemon of its own.
//
// Ownership: owns its socket and thread. Local clients must detach before it goes.
// Threads:   "pw-control" receives from workers and remote clients; a local client's messages are handled on the
//            thread that sends them, so that submitting costs no hop. Sinks of local clients are called on pw-control.
// Locks:     mutex_ guards the state; workers' messages are sent under it, which is what makes the order of gangs the
//            same everywhere. Sinks of local clients are called without it, those of local hosts with it. Each local
//            client has a lock of its own for its inbox, taken after mutex_ and not held in its sink.
#ifndef PTPATHWAYS_CONTROLLER_CONTROLLER_H_
#define PTPATHWAYS_CONTROLLER_CONTROLLER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/log_limit.h"
#include "csrc/base/status.h"
#include "csrc/controller/cluster_state.h"
#include "csrc/controller/refusal_log.h"
#include "csrc/transport/keys.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"

namespace pathways::controller {

struct ControllerOptions {
  ClusterOptions cluster;
  std::vector<std::string> bind;  // "ipc://...", "tcp://127.0.0.1:*"
  transport::ClusterKeys keys;
  bool verbose = false;  // log joins and departures on stderr
};

class Controller : private transport::SocketHandler {
 public:
  // Takes a message for a local client.
  using Sink = std::function<void(std::string head, std::vector<Payload> payloads)>;

  static Result<std::unique_ptr<Controller>> Start(ControllerOptions options);
  ~Controller() override;

  const std::vector<std::string>& endpoints() const { return endpoints_; }
  const std::string& cluster() const { return options_.cluster.cluster; }

  // A client of this process. Its sink gets the messages in order, on the control thread. Detach may be called from any
  // thread; the sink is not called after it returns, and it may be called within the sink itself.
  Connection AttachLocal(Sink sink);
  // A host of this process (a simulated one). Its sink is called under the controller's lock, so that every host gets
  // the gangs in one order; it may only put the message aside, and never call the controller.
  Connection AttachLocalHost(Sink sink);
  void DetachLocal(const Connection& connection);
  void FromLocal(const Connection& connection, std::string head, std::vector<Payload> payloads);

  // DEADLINE_EXCEEDED naming who came; UNAVAILABLE at once when a process expected to join has ended.
  Status WaitForHosts(uint32_t count, std::chrono::milliseconds timeout);
  // The launcher saw the worker process called `name` end.
  void HostExited(const std::string& name, const std::string& reason);
  std::string StatusJson();

  // Tells everyone goodbye and stops. Idempotent.
  void Close(const std::string& reason);

 private:
  explicit Controller(ControllerOptions options);
  void OnMessage(transport::Socket& socket, std::string_view peer, transport::Frames& frames) override;
  void OnPeerEvent(transport::Socket& socket, const transport::PeerEvent& event) override;
  struct LocalClient;
  // Calls its sink with what is in its inbox. On the control thread.
  static void Deliver(LocalClient& client);
  // Runs `step` on the state, sends what it puts out, and calls local sinks without the lock.
  template <typename Step>
  void Apply(Step step);
  void SendRemote(Outgoing& outgoing);
  // Counts bytes on their way to a client until the release of the frame that carries them. Null: for a worker, or too
  // few to matter. Needs mutex_.
  std::shared_ptr<std::atomic<int64_t>> CountUnread(const Connection& to, size_t bytes);
  void Log(std::string_view peer, const std::string& line);
  // OK when a remote peer may use this name, and speak as what its message says that it is.
  static Status CheckSender(std::string_view peer, const transport::Frame& head);

  ControllerOptions options_;
  std::vector<std::string> endpoints_;
  std::shared_ptr<transport::Socket> socket_;
  std::unique_ptr<transport::Reactor> reactor_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  ClusterState state_;
  LogLimit log_limit_;
  std::unordered_map<Connection, std::shared_ptr<LocalClient>> local_;
  std::unordered_map<Connection, std::shared_ptr<Sink>> local_hosts_;
  std::vector<std::string> exited_;  // processes that ended before they joined
  uint32_t next_local_ = 1;
  bool closed_ = false;
  std::unordered_map<Connection, std::shared_ptr<std::atomic<int64_t>>> unread_;  // bytes, by client
  std::vector<Connection> overflowed_;                                            // do not read what they are sent

  // Used by the control thread only:
  RefusalLog refusals_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CONTROLLER_H_
