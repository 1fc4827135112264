#include "csrc/transport/socket.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "csrc/base/log_limit.h"

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

constexpr std::string_view kIpc = "ipc://";
constexpr size_t kEndpointBytes = 512;
// libzmq takes a name away from no socket. Callers give a listener a name of their own.
constexpr std::string_view kNobody = "-";

// Initialised messages on their way to libzmq. Those that were not sent are closed on destruction: declare it before
// taking the lock, so that releases of borrowed frames run without it.
class Outgoing {
 public:
  explicit Outgoing(size_t capacity) {
    if (capacity > inline_.size()) {
      many_.resize(capacity);
      messages_ = many_.data();
    }
  }
  ~Outgoing() {
    for (size_t i = sent_; i < count_; ++i) Zmq().message_close(&messages_[i]);
  }
  void AddCopy(std::string_view bytes) {
    Frame frame(bytes);
    Add(frame);
  }
  void Add(Frame& frame) { frame.MoveInto(&messages_[count_++]); }

  // 0, or libzmq's error number.
  int SendAll(void* socket) {
    while (sent_ < count_) {
      const int flags = zmq::kDontWait | (sent_ + 1 < count_ ? zmq::kSendMore : 0);
      if (Zmq().message_send(&messages_[sent_], socket, flags) < 0) {
        const int error = Zmq().error_number();
        if (error == EINTR) continue;
        return error;
      }
      ++sent_;
    }
    return 0;
  }

 private:
  std::array<ZmqMessage, 6> inline_;
  std::vector<ZmqMessage> many_;
  ZmqMessage* messages_ = inline_.data();
  size_t count_ = 0;
  size_t sent_ = 0;
};

// A message being received; always initialised.
struct Incoming {
  Incoming() { Zmq().message_init(&message); }
  ~Incoming() { Zmq().message_close(&message); }
  // False when there is nothing (or the socket is unusable).
  bool Receive(void* socket) {
    for (;;) {
      if (Zmq().message_receive(&message, socket, zmq::kDontWait) >= 0) return true;
      if (Zmq().error_number() != EINTR) return false;
    }
  }
  bool more() const { return Zmq().message_more(&message) != 0; }
  std::string_view bytes() {
    return {static_cast<const char*>(Zmq().message_data(&message)), Zmq().message_size(&message)};
  }
  ZmqMessage message;
};

// What the 16 bits of a ping's time to live can say, in tenths of a second.
constexpr std::chrono::milliseconds kLongestHeartbeatTtl{6'553'500};

int Milliseconds(std::chrono::milliseconds value) { return static_cast<int>(value.count()); }

std::atomic<uint64_t> next_socket_number{1};

}  // namespace

Socket::Socket(SocketOptions options) : options_(std::move(options)), curve_(options_.curve) {}

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

Status Socket::SetOption(int option, int value, const char* name) {
  if (Zmq().set_option(socket_, option, &value, sizeof(value)) == 0) return OkStatus();
  return ZmqError(std::string("libzmq refused ") + name + " = " + std::to_string(value));
}

Status Socket::SetOption(int option, std::string_view value, const char* name) {
  if (Zmq().set_option(socket_, option, value.data(), value.size()) == 0) return OkStatus();
  return ZmqError(std::string("libzmq refused ") + name);
}

Status Socket::Init() {
  PW_ASSIGN_OR_RETURN(void* context, ZmqContext());
  std::lock_guard lock(mutex_);
  socket_ = Zmq().socket(context, kind() == SocketKind::kRouter ? zmq::kRouter : zmq::kDealer);
  if (socket_ == nullptr) return ZmqError("cannot open a socket");
  const SocketOptions& o = options_;
  PW_RETURN_IF_ERROR(SetOption(zmq::kSendHwm, o.send_hwm, "ZMQ_SNDHWM"));
  PW_RETURN_IF_ERROR(SetOption(zmq::kReceiveHwm, o.receive_hwm, "ZMQ_RCVHWM"));
  PW_RETURN_IF_ERROR(SetOption(zmq::kLinger, Milliseconds(o.linger), "ZMQ_LINGER"));
  PW_RETURN_IF_ERROR(SetOption(zmq::kHandshakeInterval, Milliseconds(o.handshake_timeout), "ZMQ_HANDSHAKE_IVL"));
  PW_RETURN_IF_ERROR(SetOption(zmq::kConnectTimeout, Milliseconds(o.connect_timeout), "ZMQ_CONNECT_TIMEOUT"));
  PW_RETURN_IF_ERROR(SetOption(zmq::kReconnectInterval, Milliseconds(o.reconnect_interval), "ZMQ_RECONNECT_IVL"));
  PW_RETURN_IF_ERROR(
      SetOption(zmq::kReconnectIntervalMax, Milliseconds(o.reconnect_interval_max), "ZMQ_RECONNECT_IVL_MAX"));
  if (o.heartbeat_interval.count() > 0) {
    const auto timeout = o.heartbeat_timeout.count() > 0 ? o.heartbeat_timeout : 3 * o.heartbeat_interval;
    PW_RETURN_IF_ERROR(SetOption(zmq::kHeartbeatTimeout, Milliseconds(timeout), "ZMQ_HEARTBEAT_TIMEOUT"));
    if (o.heartbeat_binds_peer) {
      // Longer than the caller's own, so that the caller, who can make it again, is the first to give a connection up.
      const auto listeners = std::min<std::chrono::milliseconds>(2 * timeout, kLongestHeartbeatTtl);
      PW_RETURN_IF_ERROR(SetOption(zmq::kHeartbeatTtl, Milliseconds(listeners), "ZMQ_HEARTBEAT_TTL"));
    }
  }
  if (o.max_message_bytes >= 0) {
    const int64_t limit = o.max_message_bytes;
    if (Zmq().set_option(socket_, zmq::kMaxMessageSize, &limit, sizeof(limit)) != 0) {
      return ZmqError("libzmq refused ZMQ_MAXMSGSIZE = " + std::to_string(limit));
    }
  }
  if (!o.identity.empty()) PW_RETURN_IF_ERROR(SetOption(zmq::kRoutingId, o.identity, "ZMQ_ROUTING_ID"));
  if (kind() == SocketKind::kRouter) {
    PW_RETURN_IF_ERROR(SetOption(zmq::kRouterMandatory, 1, "ZMQ_ROUTER_MANDATORY"));
    PW_RETURN_IF_ERROR(SetOption(zmq::kRouterHandover, o.router_handover ? 1 : 0, "ZMQ_ROUTER_HANDOVER"));
  }
  if (o.curve.enabled()) PW_RETURN_IF_ERROR(InitCurve());
  size_t size = sizeof(fd_);
  if (Zmq().get_option(socket_, zmq::kFd, &fd_, &size) != 0) return ZmqError("cannot read ZMQ_FD");
  if (o.monitor) PW_RETURN_IF_ERROR(InitMonitor());
  return OkStatus();
}

Status Socket::InitCurve() {
  const CurveOptions& curve = curve_;
  if (Zmq().has("curve") == 0) {
    return FailedPrecondition("this libzmq was built without CURVE; install pyzmq's own wheel, which has it");
  }
  PW_RETURN_IF_ERROR(SetOption(zmq::kCurvePublicKey, curve.keys.public_key, "ZMQ_CURVE_PUBLICKEY"));
  PW_RETURN_IF_ERROR(SetOption(zmq::kCurveSecretKey, curve.keys.secret_key, "ZMQ_CURVE_SECRETKEY"));
  if (curve.server_public_key.empty() && curve.allowed_client_keys.empty()) {
    return InvalidArgument(
        "a CURVE socket needs the listener's public key to connect, or the public keys of the clients it admits to "
        "bind, got neither; the cluster's own public key serves as both");
  }
  if (curve.allowed_client_keys.empty()) return OkStatus();
  if (zap_domain_.empty()) zap_domain_ = "pw-" + std::to_string(next_socket_number.fetch_add(1));
  return AllowCurveClients(zap_domain_, curve.allowed_client_keys);
}

Status Socket::SetEndpointOptions(const std::string& endpoint, bool listens) {
  const CurveOptions& curve = curve_;
  // Callers ping, and their pings say for how long the listener may hear nothing. A listener must not ping:
  // libzmq 4.3.5 ends the process (`!_io_error`) when a ping is due on a connection that was cut and that it had
  // stopped to read, because another connection had taken its routing id.
  if (options_.heartbeat_interval.count() > 0) {
    PW_RETURN_IF_ERROR(SetOption(zmq::kHeartbeatInterval, listens ? 0 : Milliseconds(options_.heartbeat_interval),
                                 "ZMQ_HEARTBEAT_IVL"));
  }
  // Only where an address needs it: with it libzmq reports IPv4 addresses in their IPv6 form.
  PW_RETURN_IF_ERROR(SetOption(zmq::kIpv6, endpoint.find('[') != std::string::npos ? 1 : 0, "ZMQ_IPV6"));
  if (!curve.enabled()) return OkStatus();
  const bool encrypts = !IsPrivate(endpoint);
  // libzmq cannot take a domain back, and asks for admission even without security once there is one.
  if (!zap_domain_.empty()) {
    PW_RETURN_IF_ERROR(
        SetOption(zmq::kZapDomain, encrypts ? std::string_view(zap_domain_) : kOpenDomain, "ZMQ_ZAP_DOMAIN"));
  }
  if (!encrypts) return SetOption(zmq::kCurveServer, 0, "ZMQ_CURVE_SERVER");  // which means: no security
  if (listens) return SetOption(zmq::kCurveServer, 1, "ZMQ_CURVE_SERVER");
  return SetOption(zmq::kCurveServerKey, curve.server_public_key, "ZMQ_CURVE_SERVERKEY");
}

Status Socket::InitMonitor() {
  PW_ASSIGN_OR_RETURN(void* context, ZmqContext());
  const std::string endpoint = "inproc://pw-monitor-" + std::to_string(next_socket_number.fetch_add(1));
  const int events = zmq::kEventConnected | zmq::kEventAccepted | zmq::kEventClosed | zmq::kEventDisconnected |
                     zmq::kEventHandshakeSucceeded | zmq::kEventHandshakeFailedNoDetail |
                     zmq::kEventHandshakeFailedAuth;
  if (Zmq().monitor(socket_, endpoint.c_str(), events) != 0) return ZmqError("cannot monitor a socket");
  monitor_ = Zmq().socket(context, zmq::kPair);
  if (monitor_ == nullptr) return ZmqError("cannot open a monitor socket");
  // Unlimited: libzmq's I/O thread would block on a full monitor.
  const int unlimited = 0;
  size_t size = sizeof(monitor_fd_);
  if (Zmq().set_option(monitor_, zmq::kReceiveHwm, &unlimited, sizeof(unlimited)) != 0 ||
      Zmq().set_option(monitor_, zmq::kLinger, &unlimited, sizeof(unlimited)) != 0 ||
      Zmq().connect(monitor_, endpoint.c_str()) != 0 ||
      Zmq().get_option(monitor_, zmq::kFd, &monitor_fd_, &size) != 0) {
    return ZmqError("cannot read a socket's monitor");
  }
  peers_ = std::make_unique<Peers>(options_.stranger_limits);
  return OkStatus();
}

Result<std::string> Socket::Bind(const std::string& endpoint) {
  std::lock_guard lock(mutex_);
  return BindLocked(endpoint);
}

Result<std::string> Socket::BindLocked(const std::string& endpoint) {
  PW_RETURN_IF_ERROR(CheckEndpointAllowed(endpoint, curve_, true));
  if (curve_.enabled() && curve_.allowed_client_keys.empty()) {
    return InvalidArgument(
        "a CURVE listener needs the public keys it admits in allowed_client_keys, got none. "
        "Endpoint: " +
        endpoint);
  }
  if (socket_ == nullptr) return Unavailable("cannot bind " + endpoint + ": the socket is closed");
  PW_RETURN_IF_ERROR(SetEndpointOptions(endpoint, true));
  if (Zmq().bind(socket_, endpoint.c_str()) != 0) {
    Status status = ZmqError("cannot bind " + endpoint);
    if (status.code() == Code::kAlreadyExists) {
      status = Status(status.code(), "cannot bind " + endpoint +
                                         ": another process listens there already; choose another port, or * for a "
                                         "free one, or end that process");
    }
    WakeReceiverIfInput();
    return status;
  }
  char bound[kEndpointBytes];
  size_t size = sizeof(bound);
  if (Zmq().get_option(socket_, zmq::kLastEndpoint, bound, &size) != 0) return ZmqError("cannot read " + endpoint);
  std::string result(bound, size > 0 ? size - 1 : 0);  // without the closing zero
  if (result.starts_with(kIpc) && !result.starts_with("ipc://@")) bound_paths_.push_back(result.substr(kIpc.size()));
  WakeReceiverIfInput();
  return result;
}

Status Socket::Connect(const std::string& endpoint) {
  std::lock_guard lock(mutex_);
  PW_RETURN_IF_ERROR(CheckConnect(endpoint));
  return ConnectLocked(endpoint);
}

Status Socket::ConnectAs(const std::string& endpoint, const std::string& peer, const std::string& identity) {
  if (kind() != SocketKind::kRouter) {
    return InvalidArgument("ConnectAs needs a ROUTER, because only a ROUTER addresses peers; use Connect");
  }
  std::lock_guard lock(mutex_);
  PW_RETURN_IF_ERROR(CheckConnect(endpoint));
  if (socket_ != nullptr) PW_RETURN_IF_ERROR(SetOption(zmq::kConnectRoutingId, peer, "ZMQ_CONNECT_ROUTING_ID"));
  if (socket_ == nullptr || identity.empty()) return ConnectLocked(endpoint);
  // A connection keeps the options with which it was begun. The identity must not stay: this socket tells its name to
  // those who call it, too.
  PW_RETURN_IF_ERROR(SetOption(zmq::kRoutingId, identity, "ZMQ_ROUTING_ID"));
  Status connected = ConnectLocked(endpoint);
  const std::string_view usual = options_.identity.empty() ? kNobody : std::string_view(options_.identity);
  PW_RETURN_IF_ERROR(SetOption(zmq::kRoutingId, usual, "ZMQ_ROUTING_ID"));
  return connected;
}

Status Socket::CheckConnect(const std::string& endpoint) const {
  PW_RETURN_IF_ERROR(CheckEndpointAllowed(endpoint, curve_, false));
  if (curve_.enabled() && curve_.server_public_key.empty()) {
    return InvalidArgument("a CURVE caller needs the listener's public key in server_public_key, got none. Endpoint: " +
                           endpoint);
  }
  return OkStatus();
}

Status Socket::ConnectLocked(const std::string& endpoint) {
  if (socket_ == nullptr) return Unavailable("cannot connect to " + endpoint + ": the socket is closed");
  Status status = SetEndpointOptions(endpoint, false);
  if (status.ok() && Zmq().connect(socket_, endpoint.c_str()) != 0) status = ZmqError("cannot connect to " + endpoint);
  if (status.ok()) connected_ = true;
  WakeReceiverIfInput();
  return status;
}

Status Socket::Disconnect(const std::string& endpoint) {
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return OkStatus();
  Status status;
  if (Zmq().disconnect(socket_, endpoint.c_str()) != 0) status = ZmqError("cannot disconnect from " + endpoint);
  WakeReceiverIfInput();
  return status;
}

Status Socket::SetCurve(CurveOptions curve) {
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return OkStatus();
  if (!curve.enabled() || !curve_.enabled()) {
    return FailedPrecondition("the keys of a socket can be changed, but not given to one without or taken from it");
  }
  curve_ = std::move(curve);
  return InitCurve();
}

Status Socket::Rebind(const std::string& endpoint, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return OkStatus();
  // libzmq closes the listener on a thread of its own. An error: it was closed before.
  (void)Zmq().unbind(socket_, endpoint.c_str());
  for (;;) {
    Status bound = BindLocked(endpoint).status();
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
    if (error == EAGAIN && !router && connected_ && options_.send_hwm == 0) error = 0;
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
    if (peers_ != nullptr && !peers_->Knows(message->peer)) {
      DrainMonitor();
      peers_->Learn(message->peer, Zmq().message_get(&part.message, zmq::kMessageSourceFd));
    }
  }
  for (;;) {
    const bool more = part.more();
    message->frames.push_back(Frame::FromMessage(&part.message));
    if (!more || !part.Receive(socket_)) return true;
  }
}

void Socket::DrainMonitor() {
  Incoming part;
  while (part.Receive(monitor_)) {
    uint16_t event = 0;
    int32_t value = 0;
    const std::string_view head = part.bytes();
    if (head.size() == sizeof(event) + sizeof(value)) {
      std::memcpy(&event, head.data(), sizeof(event));
      std::memcpy(&value, head.data() + sizeof(event), sizeof(value));
    }
    if (!part.more() || !part.Receive(monitor_)) break;
    peers_->Add(event, value, part.bytes());
  }
  peers_->Enforce();
}

void Socket::ReceivePeerEvents(std::vector<PeerEvent>* events) {
  if (peers_ == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    if (monitor_ == nullptr) return;
    DrainMonitor();
  }
  peers_->TakeEvents(events);
}

void Socket::DropStrangers(std::chrono::milliseconds grace,
                           const std::function<bool(std::string_view identity)>& is_known) {
  if (peers_ == nullptr) return;
  peers_->DropStrangers(grace, is_known);
}

void Socket::HangUp(std::string_view identity) {
  if (peers_ != nullptr) peers_->HangUp(identity);
}

bool Socket::HasPeerEvents() const { return peers_ != nullptr && peers_->HasEvents(); }

void Socket::Close() {
  std::shared_ptr<Waker> waker;
  {
    std::lock_guard lock(mutex_);
    waker = waker_;
  }
  if (waker != nullptr) waker->Detach(*this);
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return;
  if (monitor_ != nullptr) {
    Zmq().monitor(socket_, nullptr, 0);
    Zmq().close(monitor_);
    monitor_ = nullptr;
  }
  Zmq().close(socket_);
  socket_ = nullptr;
  for (const std::string& path : bound_paths_) ::unlink(path.c_str());
  bound_paths_.clear();
  if (!zap_domain_.empty()) (void)AllowCurveClients(zap_domain_, {});
}

}  // namespace pathways::transport
