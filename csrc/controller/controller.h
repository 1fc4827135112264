// Controller: Core with sockets, a clock and a lock around it. One per cluster, embedded in the client's process or a
// daemon of its own, which may have a standby (standby.h).
//
// Ownership: owns its listener and thread. Local clients must detach before it goes.
// Threads:   "pw-control" receives from workers and remote clients; a local client's messages are handled on the
//            thread that sends them, so that submitting costs no hop. Sinks of local clients are called on pw-control.
// Locks:     mutex_ guards the core and the journal; members' messages are sent under it, which is what makes the order
//            of gangs the same everywhere. Sinks of local clients are called without it, those of local hosts with it.
//            Each local client has a lock of its own for its inbox (local_members.h).
#ifndef PTPATHWAYS_CONTROLLER_CONTROLLER_H_
#define PTPATHWAYS_CONTROLLER_CONTROLLER_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/log_limit.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/controller/core.h"
#include "csrc/controller/listener.h"
#include "csrc/controller/local_members.h"
#include "csrc/controller/standby.h"
#include "csrc/transport/keys.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"

namespace pathways::controller {

struct ControllerOptions {
  ClusterOptions cluster;
  std::vector<std::string> bind;  // "ipc://...", "tcp://127.0.0.1:*"
  transport::ClusterKeys keys;
  // How long an endpoint may be somebody else's: that of a process which has just ended.
  std::chrono::milliseconds bind_patience{0};
};

// What a controller decides by of itself: its process, and what must be drawn by chance. The standby has the same.
ClusterOptions Completed(ClusterOptions options, bool has_standby);

class Controller : private transport::SocketHandler {
 public:
  using Sink = LocalMembers::Sink;

  static Result<std::unique_ptr<Controller>> Start(ControllerOptions options);
  // Goes on with `core`, and has every input of its in the journal. `options.cluster` is that of the core.
  static Result<std::unique_ptr<Controller>> Start(ControllerOptions options, std::unique_ptr<Core> core,
                                                   std::unique_ptr<Journal> journal);
  ~Controller() override;

  const std::vector<std::string>& endpoints() const { return listener_.endpoints(); }
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

  // The join token is to be another one. Members go on: they are told the keys of the next one, and when all know them,
  // or were given up, these are asked for in place of the former ones, which nobody is admitted with any more. Returns
  // at once. FAILED_PRECONDITION: there are no keys, a change is under way, or hosts hold connections that do not
  // survive it (of plugins that span hosts).
  Status Rotate(const Core::Rotation& next);
  bool rotating();
  // Empty: that which the keys of the options were made of.
  std::string token();

  // Tells everyone goodbye and stops. Idempotent.
  void Close(const std::string& reason);

 private:
  Controller(ControllerOptions options, std::unique_ptr<Core> core, std::unique_ptr<Journal> journal);
  const std::shared_ptr<transport::Socket>& socket() const { return listener_.socket(); }
  // Asks for the keys of the next token from now on, if it is time.
  void FinishRotation();
  void BeginToServe();
  void Tick();
  void OnMessage(transport::Socket& socket, std::string_view peer, transport::Frames& frames) override;
  void OnPeerEvent(transport::Socket& socket, const transport::PeerEvent& event) override;
  // Runs `step`, void(Core::Effects&), under mutex_ (the analysis does not follow it there: PW_NO_THREAD_SAFETY), sends
  // what comes of it, and calls local sinks without the lock.
  template <typename Step>
  void Run(Step step);
  // The same of an event of a local member: void(ClusterState&, Outputs&).
  template <typename Step>
  void RunLocal(Step step);
  // Before the core is given it: what the standby does not know has no effect.
  void Record(const Input& input) PW_REQUIRES(mutex_);
  void LoseStandby() PW_REQUIRES(mutex_);
  void Send(Lines::Parcels& parcels) PW_REQUIRES(mutex_);
  // Messages that members took go back to the thread of local members, which made them: memory that another thread
  // frees costs both more than the message itself. Here they are put aside, or taken by such a thread.
  void HandBack(transport::Link::Dropped& dropped) PW_REQUIRES(mutex_);
  void Log(std::string_view peer, const std::string& line);

  ControllerOptions options_;
  Listener listener_;
  std::unique_ptr<transport::Reactor> reactor_;

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::unique_ptr<Core> core_ PW_GUARDED_BY(mutex_);
  std::unique_ptr<Journal> journal_ PW_GUARDED_BY(mutex_);  // null: there is no standby
  std::string lost_standby_ PW_GUARDED_BY(mutex_);          // why, to be logged
  LogLimit log_limit_ PW_GUARDED_BY(mutex_);
  LocalMembers local_ PW_GUARDED_BY(mutex_);
  std::vector<std::string> exited_ PW_GUARDED_BY(mutex_);  // processes that ended before they joined
  Lines::Parcels parcels_ PW_GUARDED_BY(mutex_);           // empty, with the memory of an earlier message's
  transport::Link::Dropped taken_ PW_GUARDED_BY(mutex_);   // for HandBack; until the next tick at most
  bool closed_ PW_GUARDED_BY(mutex_) = false;

  // Used by the control thread only:
  uint64_t rotation_since_ms_ = 0;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CONTROLLER_H_
