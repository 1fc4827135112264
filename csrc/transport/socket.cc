#include "csrc/transport/socket.h"

#include <cerrno>
#include <thread>

#include "csrc/base/log_limit.h"
#include "csrc/transport/zmq_api.h"
#include "csrc/transport/zmq_messages.h"

namespace pathways::transport {
namespace {

// How a receiver sleeps without losing a wake-up
// ----------------------------------------------
// A libzmq socket learns about input through commands in its mailbox ("this pipe can be read"). ZMQ_FD is readable
// while the mailbox holds an unread signal, and every call on the socket, a send too, may take the commands out. After
// that the descriptor is quiet although messages wait. So readability of ZMQ_FD means "look", its absence means nothing
// by itself, and two rules make sleeping on it sound:
//
//  1. The receiver sleeps only after a receive said EAGAIN. Before saying so libzmq empties the mailbox and looks at
//     the pipes once more; hence at that moment, under mutex_, no input is pending and every later command raises a new
//     signal on ZMQ_FD. The receiver sets armed_ in the same critical section.
//  2. Whoever calls the socket while armed_ is set may be the one who swallows that later signal. So before unlocking
//     it asks ZMQ_EVENTS, which empties the mailbox and looks at the pipes, and with input pending it clears armed_ and
//     pokes the receiver by other means (an eventfd). Without input, rule 1's state holds again.
//
// While armed_ is clear the receiver is awake and bound to look again under mutex_, so that nobody needs to ask: a busy
// socket pays nothing for this.

}  // namespace

Socket::Socket(SocketOptions options) : options_(std::move(options)), endpoints_(options_) {
  if (options_.monitor) monitor_ = std::make_unique<SocketMonitor>(options_.stranger_limits);
}

Socket::~Socket() { Close(); }

Result<std::shared_ptr<Socket>> Socket::Open(SocketOptions options) {
  if (options.identity.size() > 255 || (!options.identity.empty() && options.identity[0] == '\0')) {
    return InvalidArgument("a routing id must be at most 255 bytes and not start with a zero byte, got " +
                           std::to_string(options.identity.size()) + " bytes");
  }
  std::shared_ptr<Socket> socket(new Socket(std::move(options)));
  PW_RETURN_IF_ERROR(socket->Init());
  return socket;
}

Status Socket::Init() {
  PW_ASSIGN_OR_RETURN(void* context, ZmqContext());
  std::lock_guard lock(mutex_);
  socket_ = Zmq().socket(context, kind() == SocketKind::kRouter ? zmq::kRouter : zmq::kDealer);
  if (socket_ == nullptr) return ZmqError("cannot open a socket");
  PW_RETURN_IF_ERROR(endpoints_.Open(socket_));
  size_t size = sizeof(fd_);
  if (Zmq().get_option(socket_, zmq::kFd, &fd_, &size) != 0) return ZmqError("cannot read ZMQ_FD");
  return monitor_ != nullptr ? monitor_->Open(socket_) : OkStatus();
}

template <typename Call>
auto Socket::AtEndpoints(const std::string& what, Call call) -> decltype(call(std::declval<SocketEndpoints&>())) {
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return Unavailable("cannot " + what + ": the socket is closed");
  auto result = call(endpoints_);
  WakeReceiverIfInput();
  return result;
}

Result<std::string> Socket::Bind(const std::string& endpoint) {
  return AtEndpoints("bind " + endpoint, [&](SocketEndpoints& endpoints) { return endpoints.Bind(endpoint); });
}

Status Socket::Connect(const std::string& endpoint) {
  return AtEndpoints("connect to " + endpoint, [&](SocketEndpoints& endpoints) { return endpoints.Connect(endpoint); });
}

Status Socket::ConnectAs(const std::string& endpoint, const std::string& peer, const std::string& identity) {
  if (kind() != SocketKind::kRouter) {
    return InvalidArgument("ConnectAs needs a ROUTER, because only a ROUTER addresses peers; use Connect");
  }
  return AtEndpoints("connect to " + endpoint,
                     [&](SocketEndpoints& endpoints) { return endpoints.ConnectAs(endpoint, peer, identity); });
}

Status Socket::Disconnect(const std::string& endpoint) {
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return OkStatus();
  Status status = endpoints_.Disconnect(endpoint);
  WakeReceiverIfInput();
  return status;
}

Status Socket::SetCurve(CurveOptions curve) {
  std::lock_guard lock(mutex_);
  return socket_ == nullptr ? OkStatus() : endpoints_.SetCurve(std::move(curve));
}

Status Socket::Rebind(const std::string& endpoint, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return OkStatus();
  endpoints_.Unbind(endpoint);  // libzmq closes the listener on a thread of its own
  for (;;) {
    const Status bound = endpoints_.Bind(endpoint).status();
    WakeReceiverIfInput();
    if (bound.code() != Code::kAlreadyExists || std::chrono::steady_clock::now() >= deadline) return bound;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Status Socket::Send(std::string_view peer, std::span<Frame> frames) {
  const bool router = kind() == SocketKind::kRouter;
  if (frames.empty() || router == peer.empty()) {
    return InvalidArgument(router ? "a ROUTER sends to a routing id, at least one frame"
                                  : "a DEALER sends without a routing id, at least one frame");
  }
  Outgoing outgoing(frames.size() + 1);
  if (router) outgoing.AddCopy(peer);
  for (Frame& frame : frames) outgoing.Add(frame);
  int error = 0;
  {
    std::lock_guard lock(mutex_);
    if (socket_ == nullptr) return Unavailable("cannot send: the socket is closed");
    error = outgoing.SendAll(socket_);
    // Its queue has no limit, so it has no queue: libzmq ended the connection for good. Whether this message or the
    // refusal came first is chance; either way the event tells why.
    if (error == EAGAIN && !router && endpoints_.has_connected() && options_.send_hwm == 0) error = 0;
    WakeReceiverIfInput();
  }
  if (error == 0) return OkStatus();
  if (error == EHOSTUNREACH) return NotFound("no peer '" + Printable(peer) + "' is connected to this socket");
  return ZmqErrorFrom(error, router ? "cannot send to '" + Printable(peer) + "'" : "cannot send");
}

void Socket::WakeReceiverIfInput() {
  if (!armed_ || waker_ == nullptr) return;
  int events = 0;
  size_t size = sizeof(events);
  const int rc = Zmq().get_option(socket_, zmq::kEvents, &events, &size);
  if (rc == 0 && (events & zmq::kPollIn) == 0) return;
  armed_ = false;
  waker_->Poke(*this);
}

Status Socket::SetWaker(std::shared_ptr<Waker> waker) {
  std::lock_guard lock(mutex_);
  if (waker != nullptr && waker_ != nullptr) return FailedPrecondition("this socket already has a reactor");
  if (waker != nullptr && socket_ == nullptr) return Unavailable("this socket is closed");
  waker_.swap(waker);  // the old one is destroyed after the lock
  armed_ = false;
  return OkStatus();
}

size_t Socket::ReceiveBatch(std::span<Message> messages) {
  std::lock_guard lock(mutex_);
  armed_ = false;
  size_t count = 0;
  if (socket_ == nullptr) return count;
  while (count < messages.size() && ReceiveOne(&messages[count])) ++count;
  armed_ = count < messages.size();
  return count;
}

bool Socket::ReceiveOne(Message* message) {
  Incoming part;
  if (!part.Receive(socket_)) return false;
  message->frames.clear();
  message->peer.clear();
  if (kind() == SocketKind::kRouter) {
    message->peer.assign(part.bytes());
    // The parts of one message arrive together, so a further part is there at once.
    if (!part.more() || !part.Receive(socket_)) return true;
    if (monitor_ != nullptr && !monitor_->peers().Knows(message->peer)) {
      monitor_->Drain();
      monitor_->peers().Learn(message->peer, Zmq().message_get(&part.message, zmq::kMessageSourceFd));
    }
  }
  for (;;) {
    const bool more = part.more();
    message->frames.push_back(Frame::FromMessage(&part.message));
    if (!more || !part.Receive(socket_)) return true;
  }
}

void Socket::ReceivePeerEvents(std::vector<PeerEvent>* events) {
  if (monitor_ == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    monitor_->Drain();
  }
  monitor_->peers().TakeEvents(events);
}

void Socket::DropStrangers(std::chrono::milliseconds grace,
                           const std::function<bool(std::string_view identity)>& is_known) {
  if (monitor_ != nullptr) monitor_->peers().DropStrangers(grace, is_known);
}

void Socket::HangUp(std::string_view identity) {
  if (monitor_ != nullptr) monitor_->peers().HangUp(identity);
}

bool Socket::HasPeerEvents() const { return monitor_ != nullptr && monitor_->peers().HasEvents(); }

void Socket::Close() {
  std::shared_ptr<Waker> waker;
  {
    std::lock_guard lock(mutex_);
    waker = waker_;
  }
  if (waker != nullptr) waker->Detach(*this);
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return;
  if (monitor_ != nullptr) monitor_->Close();
  Zmq().close(std::exchange(socket_, nullptr));
  endpoints_.Close();
}

}  // namespace pathways::transport
