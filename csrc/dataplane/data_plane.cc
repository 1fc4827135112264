#include "csrc/dataplane/data_plane.h"

#include <cstdio>

#include "csrc/base/sha256.h"
#include "csrc/transport/keys.h"
#include "csrc/wire/identity.h"

namespace pathways::dataplane {

using transport::BulkLease;
using transport::BulkPiece;
using transport::BulkRelease;
using transport::Frame;
using transport::Frames;

namespace {

constexpr size_t kMaxEarly = 4096;
constexpr uint64_t kMaxEarlyBytes = uint64_t{64} << 20;
constexpr size_t kRouteBytes = 16;

}  // namespace

Result<std::unique_ptr<DataPlane>> DataPlane::Start(DataPlaneOptions options, DataSink* sink) {
  std::unique_ptr<DataPlane> plane(new DataPlane(std::move(options), sink));
  transport::SocketOptions socket_options;
  socket_options.kind = transport::SocketKind::kRouter;
  socket_options.max_message_bytes = 64 << 20;
  socket_options.heartbeat_interval = std::chrono::milliseconds(1000);
  socket_options.heartbeat_timeout = std::chrono::milliseconds(60000);  // a peer that is stopped comes back
  socket_options.curve = plane->options_.curve;
  PW_ASSIGN_OR_RETURN(plane->socket_, transport::Socket::Open(socket_options));
  if (!plane->options_.bind_endpoint.empty()) {
    PW_ASSIGN_OR_RETURN(plane->endpoint_, plane->socket_->Bind(plane->options_.bind_endpoint));
  }
  PW_ASSIGN_OR_RETURN(plane->reactor_, transport::Reactor::Start({.name = "pw-data"}));
  if (!plane->options_.membership.cluster.empty()) plane->Join(plane->options_.membership);
  PW_RETURN_IF_ERROR(plane->reactor_->Add(plane->socket_, plane.get()));
  return plane;
}

DataPlane::DataPlane(DataPlaneOptions options, DataSink* sink) : options_(std::move(options)), sink_(sink) {}

DataPlane::~DataPlane() { Stop(); }

void DataPlane::Stop() {
  if (!reactor_) return;
  if (socket_) socket_->Close();
  reactor_->Stop();
  std::unordered_map<std::string, std::vector<Waiting>> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
  }
  for (auto& [peer, items] : waiting) {
    for (Waiting& item : items) {
      if (item.done) item.done(Cancelled("the data plane has stopped"));
    }
  }
  sender_.reset();
}

void DataPlane::Join(Membership membership) {
  transport::BulkSenderOptions bulk;
  bulk.pool.cluster = membership.cluster;
  bulk.pool.owner = membership.session;
  transport::BulkEmitter* const emitter = this;
  transport::BulkSink* const bulk_sink = this;
  auto sender = std::make_unique<transport::BulkSender>(bulk, emitter,
                                                        [this] { reactor_->Post([this] { sender_->Pump(8 << 20); }); });
  auto receiver = std::make_unique<transport::BulkReceiver>(membership.cluster, emitter, bulk_sink);
  (void)socket_->SetIdentity(membership.identity);  // which fails for a closed socket only
  {
    std::lock_guard lock(mutex_);
    membership_ = std::move(membership);
    sender_ = std::move(sender);
    receiver_ = std::move(receiver);
  }
  reactor_->Post([this] {
    std::vector<std::pair<std::string, Frames>> early;
    {
      std::lock_guard lock(mutex_);
      early.swap(early_);
    }
    for (auto& [peer, frames] : early) OnMessage(*socket_, peer, frames);
  });
}

Status DataPlane::ConnectTo(const std::string& host, const std::string& endpoint, const std::string& machine,
                            uint64_t session) {
  const std::string peer = PeerOfHost(host);
  std::string route;
  {
    std::lock_guard lock(mutex_);
    if (peers_.contains(peer)) return OkStatus();
    // A caller that knew the name could take the connection over.
    route = "to/" + std::to_string(next_route_++) + "/" + Hex(RandomBytes(kRouteBytes));
    peers_[peer] = Peer{!machine.empty() && machine == options_.machine, endpoint, route, session};
    names_[route] = peer;
  }
  PW_RETURN_IF_ERROR(socket_->ConnectAs(endpoint, route));
  return socket_->Send(route, Frame(wire::Encode(wire::PeerHello{membership_.cluster, options_.machine})));
}

Status DataPlane::SendMessage(std::string_view peer, Frames frames) {
  std::string route;
  {
    std::lock_guard lock(mutex_);
    const auto it = peers_.find(std::string(peer));
    if (it == peers_.end()) return NotFound("there is no data connection with " + std::string(peer));
    route = it->second.route;
  }
  return socket_->Send(route, std::move(frames));
}

void DataPlane::Send(const std::string& peer, uint64_t key, const void* data, uint64_t size,
                     std::function<void(const Status&)> done) {
  Waiting item{key, data, size, std::move(done), {}};
  bool same_machine;
  {
    std::lock_guard lock(mutex_);
    auto it = peers_.find(peer);
    if (it == peers_.end()) {
      waiting_[peer].push_back(std::move(item));
      return;
    }
    same_machine = it->second.same_machine;
  }
  Deliver(peer, same_machine, std::move(item));
}

void DataPlane::SendFailure(const std::string& peer, uint64_t key, const Status& status) {
  Waiting item{key, nullptr, 0, nullptr, status};
  {
    std::lock_guard lock(mutex_);
    if (!peers_.contains(peer)) {
      waiting_[peer].push_back(std::move(item));
      return;
    }
  }
  Deliver(peer, false, std::move(item));
}

void DataPlane::Deliver(const std::string& peer, bool same_machine, Waiting item) {
  if (item.failure.ok()) {
    sender_->Send(peer, same_machine, item.key, item.data, item.size, std::move(item.done));
    return;
  }
  wire::Data data;
  data.key = item.key;
  data.status = item.failure;
  // A peer that is gone needs no bad news.
  Frames frames;
  frames.emplace_back(wire::Encode(data));
  (void)SendMessage(peer, std::move(frames));
}

void DataPlane::PeerLost(const std::string& peer, const Status& status) {
  std::vector<Waiting> waiting;
  std::string endpoint;
  {
    std::lock_guard lock(mutex_);
    if (auto node = peers_.extract(peer); !node.empty()) {
      endpoint = std::move(node.mapped().endpoint);
      names_.erase(node.mapped().route);
    }
    auto it = waiting_.find(peer);
    if (it != waiting_.end()) {
      waiting = std::move(it->second);
      waiting_.erase(it);
    }
  }
  for (Waiting& item : waiting) {
    if (item.done) item.done(status);
  }
  sender_->PeerLost(peer, status);
  receiver_->PeerLost(peer);
  // libzmq would knock at a dead host's door for ever; an endpoint that is gone already is no matter.
  if (!endpoint.empty()) (void)socket_->Disconnect(endpoint);
}

void DataPlane::HandleMessages(MessageHandler handler) {
  auto shared = std::make_shared<const MessageHandler>(std::move(handler));
  std::lock_guard lock(mutex_);
  handler_ = std::move(shared);
}

void DataPlane::Every(std::chrono::milliseconds period, std::function<void()> task) {
  reactor_->AddTimer(period, period, std::move(task));
}

void DataPlane::OnMessage(transport::Socket&, std::string_view peer, Frames& frames) {
  if (Status status = HandleMessage(peer, frames); !status.ok()) {
    std::fprintf(stderr, "ptpathways: refused a data message from %.*s: %s\n", static_cast<int>(peer.size()),
                 peer.data(), status.ToString().c_str());
  }
}

Status DataPlane::HandleMessage(std::string_view route, Frames& frames) {
  if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
  PW_ASSIGN_OR_RETURN(wire::Head head, wire::DecodeHead(frames[0].bytes()));
  std::string peer;
  uint64_t session = 0;
  {
    std::lock_guard lock(mutex_);
    if (!sender_) {
      for (const Frame& frame : frames) early_bytes_ += frame.size();
      if (early_.size() >= kMaxEarly || early_bytes_ > kMaxEarlyBytes) {
        return ResourceExhausted("too many messages before this host joined its cluster");
      }
      early_.emplace_back(std::string(route), std::move(frames));
      return OkStatus();
    }
    if (const auto name = names_.find(std::string(route)); name != names_.end()) {
      peer = name->second;
      session = peers_.at(peer).session;
    }
  }
  if (head.header.type == wire::Type::kPeerHello) return HandleHello(route, head, frames[0]);
  if (peer.empty()) {
    return Status(Code::kPermissionDenied, "expected PEER_HELLO as the first message of a data connection, got " +
                                               std::string(wire::TypeName(head.header.type)));
  }
  switch (head.header.type) {
    case wire::Type::kData:
      return HandleData(peer, session, head, frames);
    case wire::Type::kRelease: {
      PW_ASSIGN_OR_RETURN(wire::Release release, wire::Decode<wire::Release>(head.body));
      return sender_->OnRelease(peer, {release.key, release.token, release.status});
    }
    case wire::Type::kCollectiveChunk:
    case wire::Type::kCollectiveTaken: {
      std::shared_ptr<const MessageHandler> handler;
      {
        std::lock_guard lock(mutex_);
        handler = handler_;
      }
      if (!handler) return FailedPrecondition("this process takes part in no collectives");
      return (*handler)(peer, head, frames);
    }
    default:
      return InvalidArgument("a data connection does not carry " + std::string(wire::TypeName(head.header.type)));
  }
}

Status DataPlane::HandleData(std::string_view peer, uint64_t session, const wire::Head& head, Frames& frames) {
  PW_ASSIGN_OR_RETURN(wire::Data data, wire::Decode<wire::Data>(head.body));
  if (peer.starts_with("c/") && peer != PeerOfClient(static_cast<uint32_t>(wire::ClientOf(data.key)))) {
    return Status(Code::kPermissionDenied, "a client's transfers must have its own keys");
  }
  PW_RETURN_IF_ERROR(sink_->MaySend(peer, data.key));
  if (!data.status.ok()) {
    sink_->OnTransferFailed(data.key, data.status);
    return OkStatus();
  }
  if (!data.segment.empty() && membership_.session != 0 &&
      (session == 0 || transport::SegmentOwner(data.segment) != session)) {
    return Status(Code::kPermissionDenied, "a segment of shared memory must be named by its owner");
  }
  BulkPiece piece{data.key,           data.release, data.offset, data.size, data.total, std::move(data.segment),
                  data.segment_offset};
  return receiver_->OnPiece(peer, piece, frames.size() > 1 ? std::move(frames[1]) : Frame());
}

Status DataPlane::HandleHello(std::string_view route, const wire::Head& head, const Frame& frame) {
  PW_ASSIGN_OR_RETURN(wire::PeerHello hello, wire::Decode<wire::PeerHello>(head.body));
  if (hello.cluster != membership_.cluster) {
    return FailedPrecondition("expected a peer of cluster " + membership_.cluster + ", got one of another");
  }
  wire::Identity identity{std::string(route), 0};
  if (membership_.session != 0) {
    PW_ASSIGN_OR_RETURN(identity, wire::CheckIdentity(membership_.key, route));
  }
  const bool client = identity.name.starts_with("c/");
  if ((!client && !identity.name.starts_with("w/")) ||
      !transport::SpeaksAs(frame, client ? transport::Role::kClient : transport::Role::kWorker)) {
    return Status(Code::kPermissionDenied, "a peer's name on data connections must be that of its role");
  }
  const std::string& name = identity.name;
  const bool same_machine = !hello.machine.empty() && hello.machine == options_.machine;
  std::vector<Waiting> waiting;
  {
    std::lock_guard lock(mutex_);
    uint64_t& latest = sessions_[name];
    if (identity.session < latest) return FailedPrecondition("a later session has this name by now");
    latest = identity.session;
    if (const auto before = peers_.find(name); before != peers_.end()) names_.erase(before->second.route);
    peers_[name] = Peer{same_machine, {}, std::string(route), identity.session};
    names_[std::string(route)] = name;
    auto it = waiting_.find(name);
    if (it != waiting_.end()) {
      waiting = std::move(it->second);
      waiting_.erase(it);
    }
  }
  sink_->OnPeer(name, identity.session);
  for (Waiting& item : waiting) Deliver(name, same_machine, std::move(item));
  return OkStatus();
}

void DataPlane::OnPeerEvent(transport::Socket&, const transport::PeerEvent& event) {
  // A client that hung up frees its chunks at once. Loss of hosts is the controller's decision: it is told to all.
  if (event.kind != transport::PeerEventKind::kDisconnected || !event.identity.starts_with("c/")) return;
  std::string name;
  {
    std::lock_guard lock(mutex_);
    const auto it = names_.find(event.identity);
    if (it == names_.end()) return;
    name = it->second;
  }
  PeerLost(name, Unavailable("the client closed its data connection"));
}

Status DataPlane::EmitPiece(std::string_view peer, const BulkPiece& piece, Frame payload) {
  wire::Data data;
  data.key = piece.key;
  data.offset = piece.offset;
  data.size = piece.size;
  data.total = piece.total;
  data.segment = piece.segment;
  data.segment_offset = piece.segment_offset;
  data.release = piece.ticket;
  Frames frames;
  frames.emplace_back(wire::Encode(data));
  if (piece.segment.empty()) frames.push_back(std::move(payload));
  return SendMessage(peer, std::move(frames));
}

Status DataPlane::EmitRelease(std::string_view peer, const BulkRelease& release) {
  Frames frames;
  frames.emplace_back(wire::Encode(wire::Release{release.key, release.ticket, release.status}));
  return SendMessage(peer, std::move(frames));
}

void DataPlane::OnBulk(std::string_view, const BulkPiece& piece, std::span<const std::byte> bytes, BulkLease lease) {
  sink_->OnBytes(piece.key, piece.offset, piece.total, bytes, std::move(lease));
}

}  // namespace pathways::dataplane
