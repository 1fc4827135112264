#include "csrc/transport/curve.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"

namespace pathways::transport {
namespace {

constexpr size_t kKeyTextSize = 40;
constexpr size_t kKeyBytes = 32;
constexpr std::string_view kTokenPrefix = "pw1-";
constexpr size_t kTokenSize = kTokenPrefix.size() + 2 * kKeyBytes + 8;  // the last eight find typing errors

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The process's answer to libzmq's question "may this client in?" (ZAP, RFC 27): a ROUTER at a fixed inproc address.
class Admission final : public SocketHandler {
 public:
  // The server of the current context (a forked child needs its own).
  static Result<Admission*> Get() {
    static std::mutex mutex;
    static Admission* current = nullptr;  // leaked: it serves as long as sockets may exist
    static void* context_of_current = nullptr;
    PW_ASSIGN_OR_RETURN(void* context, ZmqContext());
    std::lock_guard lock(mutex);
    if (current == nullptr || context_of_current != context) {
      auto admission = std::make_unique<Admission>();
      PW_RETURN_IF_ERROR(admission->Start());
      current = admission.release();
      context_of_current = context;
    }
    return current;
  }

  void Set(const std::string& domain, std::unordered_set<std::string> keys) {
    std::lock_guard lock(mutex_);
    if (keys.empty()) {
      allowed_.erase(domain);
    } else {
      allowed_[domain] = std::move(keys);
    }
  }

 private:
  Status Start() {
    SocketOptions options;
    options.kind = SocketKind::kRouter;
    options.monitor = false;
    PW_ASSIGN_OR_RETURN(socket_, Socket::Open(options));
    Result<std::string> bound = socket_->Bind("inproc://zeromq.zap.01");
    if (!bound.ok()) return bound.status();
    PW_ASSIGN_OR_RETURN(reactor_, Reactor::Start({.name = "pw-admission"}));
    return reactor_->Add(socket_, this);
  }

  bool Allows(const Frames& request) {
    // delimiter, version, request id, domain, address, identity, mechanism, client key
    if (request.size() == 7 && request[3].bytes() == kOpenDomain && request[6].bytes() == "NULL") return true;
    if (request.size() != 8 || request[6].bytes() != "CURVE" || request[7].size() != kKeyBytes) return false;
    std::lock_guard lock(mutex_);
    auto domain = allowed_.find(std::string(request[3].bytes()));
    return domain != allowed_.end() && domain->second.contains(std::string(request[7].bytes()));
  }

  void OnMessage(Socket& socket, std::string_view peer, Frames& request) override {
    if (request.size() < 3) return;
    const bool allowed = Allows(request);
    Frames reply;
    reply.emplace_back();  // delimiter
    reply.emplace_back("1.0");
    reply.push_back(std::move(request[2]));
    reply.emplace_back(allowed ? "200" : "400");
    reply.emplace_back(allowed ? "OK" : "this key is not one of the cluster's");
    reply.emplace_back();  // user id
    reply.emplace_back();  // metadata
    // The asking connection may be gone by now, and then nobody waits for the answer.
    (void)socket.Send(peer, std::move(reply));
  }

  std::shared_ptr<Socket> socket_;
  std::unique_ptr<Reactor> reactor_;
  std::mutex mutex_;
  // Guarded by mutex_:
  std::unordered_map<std::string, std::unordered_set<std::string>> allowed_;  // raw keys by domain
};

}  // namespace

Result<CurveKeyPair> GenerateCurveKeyPair() {
  if (!ZmqLoaded()) return FailedPrecondition("libzmq is not loaded; call LoadZmq first");
  char public_key[kKeyTextSize + 1] = {}, secret_key[kKeyTextSize + 1] = {};
  if (Zmq().curve_keypair(public_key, secret_key) != 0) return ZmqError("cannot generate a CURVE key pair");
  return CurveKeyPair{public_key, secret_key};
}

Result<CurveOptions> CurveOfToken(std::string_view token) {
  if (token.empty()) return CurveOptions{};
  // Says nothing of the text itself: errors end up in logs.
  const Status malformed = InvalidArgument("a join token must be " + std::string(kTokenPrefix) + " and " +
                                           std::to_string(kTokenSize - kTokenPrefix.size()) +
                                           " hexadecimal digits, as `ptpathways token` prints, got another text of " +
                                           std::to_string(token.size()) + " characters");
  if (token.size() != kTokenSize || !token.starts_with(kTokenPrefix)) return malformed;
  uint8_t secret[kKeyBytes];
  for (size_t i = 0; i < kKeyBytes; ++i) {
    const int high = HexDigit(token[kTokenPrefix.size() + 2 * i]),
              low = HexDigit(token[kTokenPrefix.size() + 2 * i + 1]);
    if (high < 0 || low < 0) return malformed;
    secret[i] = static_cast<uint8_t>(high << 4 | low);
  }
  if (!ZmqLoaded()) return FailedPrecondition("libzmq is not loaded; call LoadZmq first");
  char public_key[kKeyTextSize + 1] = {}, secret_key[kKeyTextSize + 1] = {};
  if (Zmq().z85_encode(secret_key, secret, kKeyBytes) == nullptr || Zmq().curve_public(public_key, secret_key) != 0) {
    return ZmqError("cannot make CURVE keys of the join token");
  }
  return CurveOptions{
      .keys = {public_key, secret_key}, .server_public_key = public_key, .allowed_client_keys = {public_key}};
}

std::string RefusedText(std::string_view endpoint, const CurveOptions& curve) {
  return "the controller at " + std::string(endpoint) + " refused the connection: " +
         (curve.enabled() ? "its cluster has another join token, or none; compare with what `ptpathways controller` "
                            "printed or its --token-file holds"
                          : "it asks for its cluster's join token (--token-file, PTPATHWAYS_TOKEN, init(token=...)), "
                            "or is no ptpathways controller");
}

bool IsLoopback(std::string_view endpoint) {
  if (endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://")) return true;
  constexpr std::string_view kTcp = "tcp://";
  if (!endpoint.starts_with(kTcp)) return false;
  std::string_view address = endpoint.substr(kTcp.size());
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return false;
  std::string host(address.substr(0, colon));
  if (host == "localhost") return true;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    in6_addr six;
    host = host.substr(1, host.size() - 2);
    return ::inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
  }
  in_addr four;
  return ::inet_pton(AF_INET, host.c_str(), &four) == 1 && (ntohl(four.s_addr) >> 24) == 127;
}

Status CheckEndpointAllowed(std::string_view endpoint, const CurveOptions& curve) {
  if (curve.enabled() || IsLoopback(endpoint)) return OkStatus();
  return Status(Code::kPermissionDenied,
                "refusing " + std::string(endpoint) +
                    " without encryption (CURVE): anybody on that network could join the cluster and run code. "
                    "Make a join token with `ptpathways token` and give it to all members (--token-file, "
                    "PTPATHWAYS_TOKEN, init(token=...)), or use an address of this machine (ipc://..., "
                    "tcp://127.0.0.1:*)");
}

Status AllowCurveClients(const std::string& domain, const std::vector<std::string>& client_public_keys) {
  std::unordered_set<std::string> keys;
  for (const std::string& text : client_public_keys) {
    uint8_t raw[kKeyBytes];
    if (text.size() != kKeyTextSize || Zmq().z85_decode(raw, text.c_str()) == nullptr) {
      return InvalidArgument("a client's public key must be 40 characters of Z85, got " + std::to_string(text.size()) +
                             " characters; generate keys with GenerateCurveKeyPair");
    }
    keys.emplace(reinterpret_cast<const char*>(raw), kKeyBytes);
  }
  PW_ASSIGN_OR_RETURN(Admission * admission, Admission::Get());
  admission->Set(domain, std::move(keys));
  return OkStatus();
}

}  // namespace pathways::transport
