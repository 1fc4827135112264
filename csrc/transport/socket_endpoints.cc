#include "csrc/transport/socket_endpoints.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "csrc/transport/zmq_api.h"

namespace pathways::transport {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr size_t kEndpointBytes = 512;
// libzmq takes a name away from no socket. Callers give a listener a name of their own.
constexpr std::string_view kNobody = "-";
// What the 16 bits of a ping's time to live can say, in tenths of a second.
constexpr std::chrono::milliseconds kLongestHeartbeatTtl{6'553'500};

int Milliseconds(std::chrono::milliseconds value) { return static_cast<int>(value.count()); }

std::atomic<uint64_t> next_domain{1};

}  // namespace

Status SocketEndpoints::SetOption(int option, int value, const char* name) {
  if (Zmq().set_option(socket_, option, &value, sizeof(value)) == 0) return OkStatus();
  return ZmqError(std::string("libzmq refused ") + name + " = " + std::to_string(value));
}

Status SocketEndpoints::SetOption(int option, std::string_view value, const char* name) {
  if (Zmq().set_option(socket_, option, value.data(), value.size()) == 0) return OkStatus();
  return ZmqError(std::string("libzmq refused ") + name);
}

Status SocketEndpoints::Open(void* socket) {
  socket_ = socket;
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
  if (o.kind == SocketKind::kRouter) {
    PW_RETURN_IF_ERROR(SetOption(zmq::kRouterMandatory, 1, "ZMQ_ROUTER_MANDATORY"));
    PW_RETURN_IF_ERROR(SetOption(zmq::kRouterHandover, o.router_handover ? 1 : 0, "ZMQ_ROUTER_HANDOVER"));
  }
  return o.curve.enabled() ? ApplyCurve() : OkStatus();
}

void SocketEndpoints::Close() {
  socket_ = nullptr;
  for (const std::string& path : bound_paths_) ::unlink(path.c_str());
  bound_paths_.clear();
  if (!zap_domain_.empty()) (void)AllowCurveClients(zap_domain_, {});
}

Status SocketEndpoints::ApplyCurve() {
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
  if (zap_domain_.empty()) zap_domain_ = "pw-" + std::to_string(next_domain.fetch_add(1));
  return AllowCurveClients(zap_domain_, curve.allowed_client_keys);
}

Status SocketEndpoints::Apply(const std::string& endpoint, bool listens) {
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

Result<std::string> SocketEndpoints::Bind(const std::string& endpoint) {
  PW_RETURN_IF_ERROR(CheckEndpointAllowed(endpoint, curve_, true));
  if (curve_.enabled() && curve_.allowed_client_keys.empty()) {
    return InvalidArgument(
        "a CURVE listener needs the public keys it admits in allowed_client_keys, got none. "
        "Endpoint: " +
        endpoint);
  }
  PW_RETURN_IF_ERROR(Apply(endpoint, true));
  if (Zmq().bind(socket_, endpoint.c_str()) != 0) {
    Status status = ZmqError("cannot bind " + endpoint);
    if (status.code() == Code::kAlreadyExists) {
      status = Status(status.code(), "cannot bind " + endpoint +
                                         ": another process listens there already; choose another port, or * for a "
                                         "free one, or end that process");
    }
    return status;
  }
  char bound[kEndpointBytes];
  size_t size = sizeof(bound);
  if (Zmq().get_option(socket_, zmq::kLastEndpoint, bound, &size) != 0) return ZmqError("cannot read " + endpoint);
  std::string result(bound, size > 0 ? size - 1 : 0);  // without the closing zero
  if (result.starts_with(kIpc) && !result.starts_with("ipc://@")) bound_paths_.push_back(result.substr(kIpc.size()));
  return result;
}

void SocketEndpoints::Unbind(const std::string& endpoint) {
  (void)Zmq().unbind(socket_, endpoint.c_str());  // an error: it was closed before
}

Status SocketEndpoints::Connect(const std::string& endpoint) {
  PW_RETURN_IF_ERROR(CheckEndpointAllowed(endpoint, curve_, false));
  if (curve_.enabled() && curve_.server_public_key.empty()) {
    return InvalidArgument("a CURVE caller needs the listener's public key in server_public_key, got none. Endpoint: " +
                           endpoint);
  }
  PW_RETURN_IF_ERROR(Apply(endpoint, false));
  if (Zmq().connect(socket_, endpoint.c_str()) != 0) return ZmqError("cannot connect to " + endpoint);
  has_connected_ = true;
  return OkStatus();
}

Status SocketEndpoints::ConnectAs(const std::string& endpoint, const std::string& peer, const std::string& identity) {
  PW_RETURN_IF_ERROR(SetOption(zmq::kConnectRoutingId, peer, "ZMQ_CONNECT_ROUTING_ID"));
  if (identity.empty()) return Connect(endpoint);
  // A connection keeps the options with which it was begun. The identity must not stay: this socket tells its name to
  // those who call it, too.
  PW_RETURN_IF_ERROR(SetOption(zmq::kRoutingId, identity, "ZMQ_ROUTING_ID"));
  Status connected = Connect(endpoint);
  const std::string_view usual = options_.identity.empty() ? kNobody : std::string_view(options_.identity);
  PW_RETURN_IF_ERROR(SetOption(zmq::kRoutingId, usual, "ZMQ_ROUTING_ID"));
  return connected;
}

Status SocketEndpoints::Disconnect(const std::string& endpoint) {
  if (Zmq().disconnect(socket_, endpoint.c_str()) != 0) return ZmqError("cannot disconnect from " + endpoint);
  return OkStatus();
}

Status SocketEndpoints::SetCurve(CurveOptions curve) {
  if (!curve.enabled() || !curve_.enabled()) {
    return FailedPrecondition("the keys of a socket can be changed, but not given to one without or taken from it");
  }
  curve_ = std::move(curve);
  return ApplyCurve();
}

}  // namespace pathways::transport
