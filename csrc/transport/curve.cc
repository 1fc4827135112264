#include "csrc/transport/curve.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "csrc/base/thread_annotations.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"

namespace pathways::transport {
namespace {

constexpr size_t kKeyTextSize = 40;
constexpr size_t kKeyBytes = 32;
// The process's answer to libzmq's question "may this client in?" (ZAP, RFC 27): a ROUTER at a fixed inproc address.
class Admission final : public SocketHandler {
 public:
  // The server of the current context (a forked child needs its own).
  static Result<Admission*> Get() {
    static std::mutex mutex;
    static Admission* current PW_GUARDED_BY(mutex) = nullptr;  // leaked: it serves as long as sockets may exist
    static void* context_of_current PW_GUARDED_BY(mutex) = nullptr;
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

  using Roles = std::unordered_map<std::string, std::string>;  // by raw key

  void Set(const std::string& domain, Roles keys) {
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

  // The user id that goes with every message of the connection; nothing when it is refused.
  std::optional<std::string> Admit(const Frames& request) {
    // delimiter, version, request id, domain, address, identity, mechanism, client key
    if (request.size() == 7 && request[3].bytes() == kOpenDomain && request[6].bytes() == "NULL") {
      return std::string(kSameUser);
    }
    if (request.size() != 8 || request[6].bytes() != "CURVE" || request[7].size() != kKeyBytes) return std::nullopt;
    std::lock_guard lock(mutex_);
    const auto domain = allowed_.find(std::string(request[3].bytes()));
    if (domain == allowed_.end()) return std::nullopt;
    const auto key = domain->second.find(std::string(request[7].bytes()));
    if (key == domain->second.end()) return std::nullopt;
    return key->second;
  }

  void OnMessage(Socket& socket, std::string_view peer, Frames& request) override {
    if (request.size() < 3) return;
    std::optional<std::string> role = Admit(request);
    Frames reply;
    reply.emplace_back();  // delimiter
    reply.emplace_back("1.0");
    reply.push_back(std::move(request[2]));
    reply.emplace_back(role ? "200" : "400");
    reply.emplace_back(role ? "OK" : "this key is not one of the cluster's");
    reply.emplace_back(role.value_or(""));  // user id
    reply.emplace_back();                   // metadata
    // The asking connection may be gone by now, and then nobody waits for the answer.
    (void)socket.Send(peer, std::move(reply));
  }

  std::shared_ptr<Socket> socket_;
  std::unique_ptr<Reactor> reactor_;
  std::mutex mutex_;
  std::unordered_map<std::string, Roles> allowed_ PW_GUARDED_BY(mutex_);  // by domain
};

}  // namespace

Result<CurveKeyPair> GenerateCurveKeyPair() {
  if (!ZmqLoaded()) return FailedPrecondition("libzmq is not loaded; call LoadZmq first");
  char public_key[kKeyTextSize + 1] = {}, secret_key[kKeyTextSize + 1] = {};
  if (Zmq().curve_keypair(public_key, secret_key) != 0) return ZmqError("cannot generate a CURVE key pair");
  return CurveKeyPair{public_key, secret_key};
}

namespace {

// Of an ipc endpoint in the file system; of others empty.
std::string FolderOf(std::string_view endpoint) {
  constexpr std::string_view kIpc = "ipc://";
  if (!endpoint.starts_with(kIpc) || endpoint.starts_with("ipc://@")) return "";
  const std::string path(endpoint.substr(kIpc.size()));
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::string RefusedText(std::string_view endpoint, const CurveOptions& curve) {
  return "the controller at " + std::string(endpoint) + " refused the connection: " +
         (curve.enabled() ? "its cluster has another join token, or none; compare with what `ptpathways controller` "
                            "was given (--token-file) or printed"
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

bool IsPrivate(std::string_view endpoint) {
  if (endpoint.starts_with("inproc://")) return true;
  const std::string folder = FolderOf(endpoint);
  struct stat status{};
  return !folder.empty() && ::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

Status CheckEndpointAllowed(std::string_view endpoint, const CurveOptions& curve, bool listens) {
  if (curve.enabled() || IsPrivate(endpoint) || (curve.insecure && IsLoopback(endpoint))) return OkStatus();
  const std::string how = "--token-file, PTPATHWAYS_TOKEN, init(token=...)";
  const std::string folder = FolderOf(endpoint);
  if (!listens && !folder.empty() && ::access(folder.c_str(), F_OK) != 0) {
    return NotFound("the socket of " + std::string(endpoint) + " must be in a folder that exists, got " + folder +
                    ": " + std::strerror(errno) +
                    "; if its cluster runs, something removed the folder: keep cleaners of " +
                    "temporary files away from it, or set XDG_RUNTIME_DIR to another folder");
  }
  if (!listens) {
    return Status(Code::kPermissionDenied, "a join token is required to connect to " + std::string(endpoint) +
                                               ", got none, and no controller of this user on this machine keeps one "
                                               "for that address; check the address, and that `ptpathways controller` "
                                               "runs there, or give its cluster's token (" +
                                               how + ")");
  }
  return Status(Code::kPermissionDenied, "refusing to listen at " + std::string(endpoint) +
                                             " without a join token: anybody " +
                                             (IsLoopback(endpoint) ? "on this machine" : "on that network") +
                                             " could join the cluster and run code. Make one with `ptpathways token` "
                                             "and give it to all members (" +
                                             how + ")");
}

Status AllowCurveClients(const std::string& domain, const std::vector<AllowedKey>& client_public_keys) {
  Admission::Roles keys;
  for (const auto& [text, role] : client_public_keys) {
    uint8_t raw[kKeyBytes];
    if (text.size() != kKeyTextSize || Zmq().z85_decode(raw, text.c_str()) == nullptr) {
      return InvalidArgument("a client's public key must be 40 characters of Z85, got " + std::to_string(text.size()) +
                             " characters; generate keys with GenerateCurveKeyPair");
    }
    keys.emplace(std::string(reinterpret_cast<const char*>(raw), kKeyBytes), role);
  }
  PW_ASSIGN_OR_RETURN(Admission * admission, Admission::Get());
  admission->Set(domain, std::move(keys));
  return OkStatus();
}

}  // namespace pathways::transport
