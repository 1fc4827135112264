// Socket: one ZeroMQ DEALER or ROUTER that any number of threads send on while one Reactor receives.
//
// Ownership: shared (std::shared_ptr); a Reactor holds one reference while the socket is added to it. The libzmq
//            socket lives until Close or the last reference.
// Threads:   Send, Bind, Connect, Disconnect, Close: any thread. Receive and ReceivePeerEvent: the owner (a Reactor).
// Locks:     mutex_ guards the libzmq socket and everything marked below. It is held only across non-blocking libzmq
//            calls, never across a callback.
//
// Why Send is safe without a hop to another thread: libzmq sockets may be used from several threads if each hand-over
// is a full fence, which the mutex is. What needs care is the wake-up of the receiver; socket.cc explains it.
#ifndef PTPATHWAYS_TRANSPORT_SOCKET_H_
#define PTPATHWAYS_TRANSPORT_SOCKET_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/transport/frame.h"
#include "csrc/transport/peers.h"
#include "csrc/transport/socket_endpoints.h"
#include "csrc/transport/socket_monitor.h"
#include "csrc/transport/socket_options.h"

namespace pathways::transport {

class Socket {
 public:
  class Waker {  // the receiver, as the socket sees it
   public:
    virtual ~Waker() = default;
    // Input may be pending although fd() shows nothing. Called under mutex_: must neither block nor call the socket.
    virtual void Poke(Socket& socket) = 0;
    // Close asks the receiver to let go: as Reactor::Remove.
    virtual void Detach(Socket& socket) = 0;
  };

  static Result<std::shared_ptr<Socket>> Open(SocketOptions options);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // `endpoint`: ipc://<path>, tcp://127.0.0.1:* (or a port), inproc://<name>. Returns the endpoint to connect to.
  // PERMISSION_DENIED for a non-loopback address without CURVE keys. An ipc path is removed again by Close.
  Result<std::string> Bind(const std::string& endpoint);
  // Returns at once; libzmq connects (and reconnects) by itself and queues messages meanwhile.
  Status Connect(const std::string& endpoint);
  // ROUTER only: as Connect, and `peer` names the other end from now on, so that one can send before it has spoken.
  // `identity`: what this socket is called at that end only; empty: SocketOptions::identity.
  Status ConnectAs(const std::string& endpoint, const std::string& peer, const std::string& identity = "");
  Status Disconnect(const std::string& endpoint);
  // From now on connections are made and admitted with these keys; those that there are stay. Only for a socket that
  // was opened with keys.
  Status SetCurve(CurveOptions curve);
  // Ends all connections that came in at `endpoint`, which Bind returned, and listens there again, with the keys that
  // are the socket's now. On the receiving thread. An error: it is not listened there any more; to be tried again.
  Status Rebind(const std::string& endpoint, std::chrono::milliseconds patience);

  // Never blocks. `peer` is the routing id on a ROUTER and must be empty on a DEALER. All frames go as one message,
  // in the order in which the callers take the lock; the frames are consumed whatever the outcome.
  // OK promises no delivery: a connection that ends takes its messages along, those a DEALER sends after a refused
  // handshake too, and a PeerEvent tells why.
  // NOT_FOUND: no such peer (ROUTER). RESOURCE_EXHAUSTED: send_hwm reached, or a DEALER that never connected.
  // UNAVAILABLE: closed.
  Status Send(std::string_view peer, std::span<Frame> frames);
  Status Send(std::string_view peer, Frames frames) { return Send(peer, std::span<Frame>(frames)); }
  Status Send(std::string_view peer, Frame frame) { return Send(peer, std::span<Frame>(&frame, 1)); }

  // Leaves its Reactor, if it has one (which must not be destroyed meanwhile), closes the libzmq socket and removes
  // bound ipc paths. Idempotent.
  void Close();

  const SocketOptions& options() const { return options_; }  // as it was opened
  SocketKind kind() const { return options_.kind; }

  // --- For the one receiving thread (Reactor). ---
  struct Message {
    std::string peer;  // routing id on a ROUTER, empty on a DEALER
    Frames frames;
  };
  // Attaches the receiver; one at a time. nullptr detaches.
  Status SetWaker(std::shared_ptr<Waker> waker);
  // Readable when ReceiveBatch or ReceivePeerEvents should be called. Edge triggered: see socket.cc. -1 when closed.
  int fd() const { return fd_; }
  int monitor_fd() const { return monitor_ != nullptr ? monitor_->fd() : -1; }
  // Fills messages[0..n) (their buffers are reused) and returns n. Fewer than messages.size() means that the socket
  // was empty and is armed: the next input makes fd() readable or pokes the waker.
  size_t ReceiveBatch(std::span<Message> messages);
  // Appends peer events, in order.
  void ReceivePeerEvents(std::vector<PeerEvent>* events);
  // True when ReceiveBatch read events on the side, which no descriptor announces any more.
  bool HasPeerEvents() const;
  // Hangs up on callers that connected more than `grace` ago and whose first message has not made them known. Needs a
  // monitor. Without mutex_.
  void DropStrangers(std::chrono::milliseconds grace, const std::function<bool(std::string_view identity)>& is_known);
  // Ends the connection of a caller that has spoken: its end is reported as any other. Does nothing for somebody else.
  void HangUp(std::string_view identity);

 private:
  explicit Socket(SocketOptions options);
  Status Init();
  // `what`: as in "cannot bind tcp://...: the socket is closed".
  template <typename Call>
  auto AtEndpoints(const std::string& what, Call call) -> decltype(call(std::declval<SocketEndpoints&>()));
  void WakeReceiverIfInput() PW_REQUIRES(mutex_);
  bool ReceiveOne(Message* message) PW_REQUIRES(mutex_);

  const SocketOptions options_;
  int fd_ = -1;

  std::mutex mutex_;
  void* socket_ PW_GUARDED_BY(mutex_) = nullptr;
  SocketEndpoints endpoints_ PW_GUARDED_BY(mutex_);
  std::shared_ptr<Waker> waker_ PW_GUARDED_BY(mutex_);
  bool armed_ PW_GUARDED_BY(mutex_) = false;  // the receiver sleeps or is about to, and saw no input

  // Null without one. Used by the receiving thread only, drained under mutex_.
  std::unique_ptr<SocketMonitor> monitor_;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_SOCKET_H_
