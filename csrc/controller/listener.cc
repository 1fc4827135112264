#include "csrc/controller/listener.h"

#include <thread>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/controller/core.h"
#include "csrc/controller/lines.h"
#include "csrc/transport/keys.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {
namespace {

// A caller must have joined by then.
constexpr std::chrono::seconds kHelloDeadline{10};
constexpr std::chrono::milliseconds kBindAgain{20};
// libzmq closes a listener within milliseconds.
constexpr std::chrono::milliseconds kRebindPatience{200};

// Messages to one peer that libzmq keeps: more than a line does (Lines), which is what ends those who do not read.
constexpr int kMaxQueued = 1 << 17;
// Messages of one peer that libzmq takes ahead; then the peer's end keeps them.
constexpr int kMaxReceived = 1 << 13;

}  // namespace

Status Listener::Open(const std::vector<std::string>& bind, const transport::CurveOptions& curve,
                      std::chrono::milliseconds patience) {
  transport::SocketOptions options;
  options.kind = transport::SocketKind::kRouter;
  options.linger = std::chrono::milliseconds(200);
  options.send_hwm = kMaxQueued;
  options.receive_hwm = kMaxReceived;
  options.max_message_bytes = int64_t{1} << 31;
  options.curve = curve;
  options.stranger_limits = transport::UsualStrangerLimits();
  options.router_handover = false;  // nobody takes another's connection over
  PW_ASSIGN_OR_RETURN(socket_, transport::Socket::Open(options));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const std::string& endpoint : bind) {
    Result<std::string> bound = socket_->Bind(endpoint);
    while (bound.status().code() == Code::kAlreadyExists && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kBindAgain);
      bound = socket_->Bind(endpoint);
    }
    if (!bound.ok()) return bound.status();
    endpoints_.push_back(*std::move(bound));
  }
  return OkStatus();
}

Status Listener::CheckSender(std::string_view peer, const transport::Frame& head) {
  if (peer.starts_with(Core::kLocal) || peer.starts_with(Lines::kPrefix)) {
    return Status(Code::kPermissionDenied,
                  "a connection's routing id must not begin with local/ or line/, which name members; leave it to "
                  "libzmq to choose one");
  }
  Result<wire::Head> decoded = wire::DecodeHead(head.bytes());
  if (!decoded.ok()) return OkStatus();  // refused by the state, with the reason
  transport::Role role = transport::Role::kWorker;
  if (decoded->header.type == wire::Type::kHello) {
    Result<wire::Hello> hello = wire::Decode<wire::Hello>(decoded->body);
    if (!hello.ok()) return OkStatus();
    role = hello->role == wire::Role::kWorker ? transport::Role::kWorker : transport::Role::kClient;
  } else if (decoded->header.type != wire::Type::kIslandJoin) {
    return OkStatus();
  }
  if (transport::SpeaksAs(head, role)) return OkStatus();
  return Status(Code::kPermissionDenied, "expected the key of a " + std::string(transport::RoleName(role)) +
                                             " from who joins as one, got that of a " + std::string(head.sender()) +
                                             "; give it a token of its role (`ptpathways token --role`)");
}

void Listener::AskFor(const transport::CurveOptions& curve) {
  (void)socket_->SetCurve(curve);  // which fails for a closed socket only
  for (const std::string& endpoint : endpoints_) {
    if (!transport::IsPrivate(endpoint)) unbound_.push_back(endpoint);
  }
}

void Listener::ListenAgain() {
  for (const std::string& endpoint : std::exchange(unbound_, {})) {
    const Status bound = socket_->Rebind(endpoint, kRebindPatience);
    if (bound.ok()) continue;
    logging::Warning("controller", bound.ToString() + "; it is tried again");
    unbound_.push_back(endpoint);
  }
}

void Listener::DropStrangers(const std::function<bool(std::string_view)>& knows) {
  socket_->DropStrangers(kHelloDeadline, knows);
}

void Listener::LogRefusal(const transport::PeerEvent& event, uint64_t now_ms) {
  // Who hung up has said nothing wrong; it may have seen that it lacks a token. By private endpoints only this user's
  // own processes come, without a token: one of them, or this one, was stopped while a connection was made again.
  if (event.hung_up && transport::IsPrivate(event.endpoint)) return;
  const std::string address = event.address.empty() ? "an unknown address" : event.address;
  const char* const why =
      event.hung_up ? "it ended before it showed the cluster's join token (as one that was stopped or cut off)"
                    : "its join token is wrong or missing";
  if (const auto line = refusals_.Take(address, "refused a connection from " + address + ": " + why, now_ms)) {
    logging::Warning("controller", *line);
  }
}

}  // namespace pathways::controller
