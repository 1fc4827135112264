// ControlLine: a member's end of its line with the controller (line.h): one DEALER socket, whose connection is made
// again when it is lost, and what is said first on each.
//
// Lost is the controller when its connection closed and cannot be made again in time (Lifeline), when it is silent for
// its lease, or when it does not take what it is sent. Heartbeats go out on a thread of the user's that is never busy
// for long, and show the controller whose a new connection is even while the receiving thread is busy.
//
// Ownership: owns its socket; borrows the handler, which must outlive the reactor it is attached to. Threads: Send,
// Beat and Close: any thread. The handler is called on the reactor's thread. Locks: mutex_ guards the line, and is held
// while a message is sent, so that messages leave in the order of their numbers (then the socket's lock is taken);
// never while the handler runs.
#ifndef PTPATHWAYS_TRANSPORT_CONTROL_LINE_H_
#define PTPATHWAYS_TRANSPORT_CONTROL_LINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/transport/line.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"
#include "csrc/wire/bodies.h"

namespace pathways::transport {

class ControlLine : private SocketHandler {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    // Each message once, in order. Frames may be moved from; the head is frame 0.
    virtual void OnMessage(Frames& frames) = 0;
    // Once at most; nothing comes afterwards.
    virtual void OnLost(const Status& status) = 0;
  };

  // Begins to connect. How sockets to the controller are made is SocketOptionsFor's to say.
  static Result<std::unique_ptr<ControlLine>> Open(const std::string& endpoint, const CurveOptions& curve);
  static SocketOptions SocketOptionsFor(const CurveOptions& curve);
  ~ControlLine() override;

  // From now on the handler is called.
  Status Attach(Reactor* reactor, Handler* handler);
  // Says HELLO, again if the connection is lost before the answer. Its line, secret and process space are filled in.
  Status Join(wire::Hello hello);
  // Never blocks. RESOURCE_EXHAUSTED when the controller has left too much untaken: then it is lost.
  Status Send(Frames frames);
  // To be called every heartbeat interval. Does nothing before the controller's answer.
  void Beat(uint64_t live_buffers = 0, uint64_t live_bytes = 0, uint64_t engine_still_ms = 0);
  // The next connection needs these keys, or still those of this one.
  void Rotate(const CurveOptions& curve);
  // Closes the socket. The reactor must have been stopped, if there is one.
  void Close() { socket_->Close(); }

 private:
  ControlLine(std::string endpoint, std::shared_ptr<Socket> socket);
  void OnMessage(Socket& socket, std::string_view peer, Frames& frames) override;
  void OnPeerEvent(Socket& socket, const PeerEvent& event) override;
  // Whether the handler is to have it.
  Result<bool> Take(Frames& frames);
  void OnWelcome(const wire::Head& head) PW_REQUIRES(mutex_);
  void OnTick();
  void CallAgain() PW_REQUIRES(mutex_);
  void Lose(const Status& status);
  void SendBeat() PW_REQUIRES(mutex_);

  const std::string endpoint_;
  const std::shared_ptr<Socket> socket_;
  const std::string secret_;

  std::mutex mutex_;
  Line line_ PW_GUARDED_BY(mutex_);
  std::string hello_ PW_GUARDED_BY(mutex_);  // empty before Join
  bool welcomed_ PW_GUARDED_BY(mutex_) = false;
  CurveOptions curve_ PW_GUARDED_BY(mutex_);  // of the latest connection
  std::optional<CurveOptions> next_curve_ PW_GUARDED_BY(mutex_);
  bool tries_next_ PW_GUARDED_BY(mutex_) = false;  // the connection that is being made is made with those
  wire::Heartbeat beat_ PW_GUARDED_BY(mutex_);     // with what the last one said

  // Used by the reactor's thread only, once attached:
  Handler* handler_ = nullptr;
  Lifeline lifeline_;
  int64_t lease_ms_ = 0;         // 0 before the controller's answer
  uint64_t controller_pid_ = 0;  // 0: not of our process space
  int64_t called_ms_ = 0;
  std::optional<int64_t> refused_ms_;  // when a connection ended last before it was one
  bool lost_ = false;
  std::atomic<bool> overflowed_{false};
  std::atomic<int64_t> heard_ms_{0};  // when the controller's latest message came
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_CONTROL_LINE_H_
