#include "csrc/transport/socket.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <unordered_set>

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

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

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

int Milliseconds(std::chrono::milliseconds value) { return static_cast<int>(value.count()); }

std::atomic<uint64_t> next_socket_number{1};

}  // namespace

// Which connection speaks for which routing id. libzmq reports a lost connection by its file descriptor only, so each
// peer's first message tells which one is its. Descriptors are used again at once, and the monitor is a queue apart
// from the messages; but libzmq reports a connection's start before its first message is read, and its end before the
// descriptor is closed. Hence, with the monitor drained when a first message is looked at, `open` is up to date.
struct Socket::Peers {
  explicit Peers(StrangerLimits limits) : callers(limits) {}
  std::unordered_map<std::string, int, StringHash, std::equal_to<>> fd_of;
  std::unordered_map<int, std::string> identity_of;
  std::unordered_set<int> open;
  Callers callers;
  // libzmq tells of a failed handshake without saying whose; the end of that connection follows.
  std::optional<PeerEvent> refused;
  std::vector<PeerEvent> pending;

  bool Knows(std::string_view identity) const { return fd_of.find(identity) != fd_of.end(); }

  // Called for a peer's first message, with the monitor drained.
  void Learn(std::string_view identity, int fd) {
    if (fd < 0) {  // inproc: its ends are not reported
      fd_of[std::string(identity)] = fd;
      return;
    }
    if (!open.contains(fd)) {  // it came and went before its message was read
      pending.push_back({PeerEventKind::kDisconnected, std::string(identity), "", fd});
      return;
    }
    // Two first messages from one descriptor: the sender of the earlier one came and went, and libzmq serves the older
    // connection first.
    if (auto earlier = identity_of.find(fd); earlier != identity_of.end()) {
      fd_of.erase(earlier->second);
      pending.push_back({PeerEventKind::kDisconnected, std::move(earlier->second), "", fd});
    }
    fd_of[std::string(identity)] = fd;
    identity_of[fd] = std::string(identity);
    callers.Spoke(fd);
  }

  void Add(int event, int value, std::string_view endpoint) {
    PeerEvent out{PeerEventKind::kHandshakeFailed, "", std::string(endpoint), value};
    out.hung_up = event == zmq::kEventHandshakeFailedNoDetail;
    if (event == zmq::kEventAccepted || event == zmq::kEventConnected) {
      open.insert(value);
      if (event == zmq::kEventAccepted) callers.Accepted(value, endpoint.starts_with("tcp://"));
      return;  // of interest to users once the handshake is done, an event that has no descriptor
    }
    if (event == zmq::kEventHandshakeSucceeded) out.kind = PeerEventKind::kConnected;
    if (event == zmq::kEventDisconnected) {
      out.kind = PeerEventKind::kDisconnected;
      open.erase(value);
      std::string caller = callers.Ended(value);
      if (refused && !identity_of.contains(value)) {
        if (!caller.empty()) refused->address = std::move(caller);
        pending.push_back(*std::move(refused));
        refused.reset();
      }
      if (auto at = identity_of.find(value); at != identity_of.end()) {
        out.identity = std::move(at->second);
        identity_of.erase(at);
        // With hand-over a newer connection may speak for this routing id by now.
        if (auto known = fd_of.find(out.identity); known != fd_of.end() && known->second == value) fd_of.erase(known);
      }
    }
    if (out.kind == PeerEventKind::kHandshakeFailed) {
      if (refused) pending.push_back(*std::move(refused));
      refused = std::move(out);
      return;
    }
    pending.push_back(std::move(out));
  }
};

Socket::Socket(SocketOptions options) : options_(std::move(options)) {}

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
    PW_RETURN_IF_ERROR(SetOption(zmq::kHeartbeatInterval, Milliseconds(o.heartbeat_interval), "ZMQ_HEARTBEAT_IVL"));
    const auto timeout = o.heartbeat_timeout.count() > 0 ? o.heartbeat_timeout : 3 * o.heartbeat_interval;
    PW_RETURN_IF_ERROR(SetOption(zmq::kHeartbeatTimeout, Milliseconds(timeout), "ZMQ_HEARTBEAT_TIMEOUT"));
    PW_RETURN_IF_ERROR(SetOption(zmq::kHeartbeatTtl, Milliseconds(timeout), "ZMQ_HEARTBEAT_TTL"));
  }
  if (o.kernel_buffer_bytes >= 0) {
    PW_RETURN_IF_ERROR(SetOption(zmq::kSendBuffer, o.kernel_buffer_bytes, "ZMQ_SNDBUF"));
    PW_RETURN_IF_ERROR(SetOption(zmq::kReceiveBuffer, o.kernel_buffer_bytes, "ZMQ_RCVBUF"));
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
  const CurveOptions& curve = options_.curve;
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
  zap_domain_ = "pw-" + std::to_string(next_socket_number.fetch_add(1));
  return AllowCurveClients(zap_domain_, curve.allowed_client_keys);
}

Status Socket::SetEndpointOptions(const std::string& endpoint, bool listens) {
  const CurveOptions& curve = options_.curve;
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
  const int events = zmq::kEventConnected | zmq::kEventAccepted | zmq::kEventDisconnected |
                     zmq::kEventHandshakeSucceeded | zmq::kEventHandshakeFailedNoDetail |
                     zmq::kEventHandshakeFailedProtocol | zmq::kEventHandshakeFailedAuth;
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
  PW_RETURN_IF_ERROR(CheckEndpointAllowed(endpoint, options_.curve, true));
  if (options_.curve.enabled() && options_.curve.allowed_client_keys.empty()) {
    return InvalidArgument(
        "a CURVE listener needs the public keys it admits in allowed_client_keys, got none. "
        "Endpoint: " +
        endpoint);
  }
  std::lock_guard lock(mutex_);
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
  PW_RETURN_IF_ERROR(CheckConnect(endpoint));
  std::lock_guard lock(mutex_);
  return ConnectLocked(endpoint);
}

Status Socket::ConnectAs(const std::string& endpoint, const std::string& peer) {
  if (kind() != SocketKind::kRouter) {
    return InvalidArgument("ConnectAs needs a ROUTER, because only a ROUTER addresses peers; use Connect");
  }
  PW_RETURN_IF_ERROR(CheckConnect(endpoint));
  std::lock_guard lock(mutex_);
  if (socket_ != nullptr) PW_RETURN_IF_ERROR(SetOption(zmq::kConnectRoutingId, peer, "ZMQ_CONNECT_ROUTING_ID"));
  return ConnectLocked(endpoint);
}

Status Socket::CheckConnect(const std::string& endpoint) const {
  PW_RETURN_IF_ERROR(CheckEndpointAllowed(endpoint, options_.curve, false));
  if (options_.curve.enabled() && options_.curve.server_public_key.empty()) {
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

Status Socket::SetIdentity(std::string_view identity) {
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr) return Unavailable("cannot name a closed socket");
  return SetOption(zmq::kRoutingId, identity, "ZMQ_ROUTING_ID");
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
  peers_->callers.Enforce();
}

void Socket::ReceivePeerEvents(std::vector<PeerEvent>* events) {
  if (peers_ == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    if (monitor_ == nullptr) return;
    DrainMonitor();
  }
  for (PeerEvent& event : peers_->pending) events->push_back(std::move(event));
  peers_->pending.clear();
}

void Socket::DropStrangers(std::chrono::milliseconds grace,
                           const std::function<bool(std::string_view identity)>& is_known) {
  if (peers_ == nullptr) return;
  peers_->callers.DropStrangers(std::chrono::steady_clock::now(), grace, [&](int fd) {
    const auto identity = peers_->identity_of.find(fd);
    return identity != peers_->identity_of.end() && is_known(identity->second);
  });
}

bool Socket::HasPeerEvents() const { return peers_ != nullptr && !peers_->pending.empty(); }

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
