#include "csrc/dataplane/data_plane.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "csrc/base/log.h"
#include "csrc/base/log_limit.h"

namespace pathways::dataplane {

using transport::Frame;
using transport::Frames;

namespace {

constexpr std::chrono::milliseconds kTick{500};
// Messages of one peer that libzmq has read and this process has not. Beyond them the peer's connection waits, and with
// it ZeroMQ's pings: should the data thread not come to it for seconds, the connection is made anew.
constexpr int kMaxReceived = 1000;
constexpr std::chrono::seconds kLookAtStrangers{1};
// A caller must have said who it is by then.
constexpr std::chrono::seconds kHelloDeadline{10};
// libzmq closes a listener within milliseconds.
constexpr std::chrono::milliseconds kRebindPatience{200};

transport::SocketOptions SocketOptionsOf(const DataPlaneOptions& options) {
  // A connection is given up well before its transfers are, so that they can go by another one.
  const auto connection_timeout = std::min(options.connection_timeout, options.transfer_timeout / 3);
  transport::SocketOptions socket;
  socket.kind = transport::SocketKind::kRouter;
  socket.max_message_bytes = wire::kHeaderBytes + wire::kMaxBodyBytes;  // payloads have less
  // Beyond them messages wait in the link, and are sent again at the next tick.
  socket.send_hwm = static_cast<int>(options.limits.messages);
  socket.receive_hwm = kMaxReceived;
  socket.stranger_limits = transport::UsualStrangerLimits();
  socket.heartbeat_interval = std::min(connection_timeout / 4, std::chrono::milliseconds(1000));
  socket.heartbeat_timeout = connection_timeout;
  socket.handshake_timeout = connection_timeout;
  socket.connect_timeout = connection_timeout;
  socket.curve = options.curve;
  return socket;
}

}  // namespace

Result<std::chrono::milliseconds> TransferTimeoutOf(const char* text) {
  if (text == nullptr || *text == '\0') return DataPlaneOptions().transfer_timeout;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != '\0' || !(seconds >= 1 && seconds <= 86400)) {
    return InvalidArgument("PTPATHWAYS_TRANSFER_TIMEOUT_S must be a number of seconds from 1 to 86400, got '" +
                           Printable(text) + "'");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

Result<std::unique_ptr<DataPlane>> DataPlane::Start(DataPlaneOptions options, DataSink* sink) {
  PW_ASSIGN_OR_RETURN(std::shared_ptr<transport::Socket> socket, transport::Socket::Open(SocketOptionsOf(options)));
  std::string endpoint;
  if (!options.bind_endpoint.empty()) {
    PW_ASSIGN_OR_RETURN(endpoint, socket->Bind(options.bind_endpoint));
  }
  PW_ASSIGN_OR_RETURN(std::unique_ptr<transport::Reactor> reactor, transport::Reactor::Start({.name = "pw-data"}));
  std::unique_ptr<DataPlane> plane(
      new DataPlane(options, sink, std::move(socket), std::move(endpoint), std::move(reactor)));
  if (!options.membership.cluster.empty()) plane->Join(std::move(options.membership));
  PW_RETURN_IF_ERROR(plane->reactor_->Add(plane->socket_, plane.get()));
  plane->Every(std::min(kTick, options.transfer_timeout / 4), [raw = plane.get()] { raw->OnTick(); });
  if (!plane->endpoint_.empty()) plane->Every(kLookAtStrangers, [raw = plane.get()] { raw->DropStrangers(); });
  return plane;
}

DataPlane::DataPlane(const DataPlaneOptions& options, DataSink* sink, std::shared_ptr<transport::Socket> socket,
                     std::string endpoint, std::unique_ptr<transport::Reactor> reactor)
    : has_keys_(options.curve.enabled()),
      sink_(sink),
      endpoint_(std::move(endpoint)),
      socket_(std::move(socket)),
      reactor_(std::move(reactor)),
      links_({options.machine, endpoint_, options.limits,
              [this](const std::string& peer) { Post([this, peer] { links_.HangUp(peer); }); }},
             socket_),
      transfers_(
          {options.transfer_timeout, options.limits, options.pinner, [this] { Post([this] { transfers_.Pump(); }); }},
          links_, sink) {}

DataPlane::~DataPlane() { Stop(); }

void DataPlane::Stop() {
  links_.Stop();
  socket_->Close();
  reactor_->Stop();
  links_.Clear();  // with the shares of borrowed memory, for which the transfers would wait
  transfers_.Stop();
}

void DataPlane::Join(Membership membership) {
  transfers_.Join(membership.cluster, membership.session);
  links_.Join(std::move(membership));
  Post([this] {
    joined_ = true;
    for (auto& [route, frames] : early_.Take()) OnMessage(*socket_, route, frames);
  });
}

void DataPlane::HandleMessages(MessageHandler handler) {
  auto shared = std::make_shared<const MessageHandler>(std::move(handler));
  std::lock_guard lock(handler_mutex_);
  handler_ = std::move(shared);
}

void DataPlane::OnMessage(transport::Socket&, std::string_view route, Frames& frames) {
  if (Status status = HandleMessage(route, frames); !status.ok()) links_.Refused(route, status);
}

Status DataPlane::HandleMessage(std::string_view route, Frames& frames) {
  if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
  PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frames[0].bytes()));
  PW_RETURN_IF_ERROR(wire::CheckPayloads(frames.size() - 1));
  if (!joined_) return early_.Keep(route, frames);
  const wire::Type type = head.header.type;
  if (type == wire::Type::kPeerHello) return HandleHello(route, head, frames[0]);
  if (type == wire::Type::kPeerSeen) {
    PW_ASSIGN_OR_RETURN(const wire::PeerSeen seen, wire::Decode<wire::PeerSeen>(head.body));
    return links_.OnSeen(route, seen);
  }
  PW_ASSIGN_OR_RETURN(const std::optional<PeerLinks::Sender> from, links_.Take(route, head.header));
  if (!from) return OkStatus();
  if (type == wire::Type::kData) return transfers_.OnData(*from, head, frames);
  if (type == wire::Type::kRelease) {
    PW_ASSIGN_OR_RETURN(const wire::Release release, wire::Decode<wire::Release>(head.body));
    return transfers_.OnRelease(from->name, release);
  }
  if (type == wire::Type::kResume) {
    PW_ASSIGN_OR_RETURN(const wire::Resume resume, wire::Decode<wire::Resume>(head.body));
    return transfers_.OnResume(from->name, resume);
  }
  if (from->name.starts_with("c/")) return Status(Code::kPermissionDenied, "a client takes part in no collectives");
  std::shared_ptr<const MessageHandler> handler;
  {
    std::lock_guard lock(handler_mutex_);
    handler = handler_;
  }
  if (!handler) return FailedPrecondition("this process takes part in no collectives");
  return (*handler)(from->name, head, frames);
}

Status DataPlane::HandleHello(std::string_view route, const wire::Head& head, const Frame& frame) {
  PW_ASSIGN_OR_RETURN(const wire::PeerHello hello, wire::Decode<wire::PeerHello>(head.body));
  PW_ASSIGN_OR_RETURN(const std::optional<PeerLinks::Greeting> greeting, links_.OnHello(route, hello, frame));
  if (!greeting) return OkStatus();
  if (greeting->fresh) sink_->OnPeer(greeting->peer, greeting->session);
  transfers_.OnHello(*greeting);
  return OkStatus();
}

void DataPlane::OnPeerEvent(transport::Socket&, const transport::PeerEvent& event) { links_.OnConnection(event); }

void DataPlane::OnTick() {
  if (listens_again_) listens_again_ = !ListenAgain();
  transfers_.OnTick(std::chrono::steady_clock::now());
  links_.OnTick(transfers_.open());
}

void DataPlane::Rotate(transport::CurveOptions curve) {
  if (!has_keys_) return;
  Post([this, curve = std::move(curve)] {
    (void)socket_->SetCurve(curve);  // which fails for a closed socket only
    listens_again_ = !endpoint_.empty() && !transport::IsPrivate(endpoint_) && !ListenAgain();
    links_.CallAllAgain();
  });
}

bool DataPlane::ListenAgain() {
  const Status bound = socket_->Rebind(endpoint_, kRebindPatience);
  if (!bound.ok()) logging::Warning("", bound.ToString() + "; it is tried again");
  return bound.ok();
}

void DataPlane::DropStrangers() {
  socket_->DropStrangers(kHelloDeadline, [this](std::string_view route) { return !joined_ || links_.Knows(route); });
}

}  // namespace pathways::dataplane
