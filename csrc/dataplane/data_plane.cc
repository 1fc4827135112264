#include "csrc/dataplane/data_plane.h"

#include <cstdio>

namespace pathways::dataplane {

using transport::BulkLease;
using transport::BulkPiece;
using transport::BulkRelease;
using transport::Frame;
using transport::Frames;

namespace {

constexpr size_t kMaxEarly = 4096;

}  // namespace

Result<std::unique_ptr<DataPlane>> DataPlane::Start(DataPlaneOptions options, DataSink* sink) {
  std::unique_ptr<DataPlane> plane(new DataPlane(std::move(options), sink));
  transport::SocketOptions socket_options;
  socket_options.kind = transport::SocketKind::kRouter;
  socket_options.identity = plane->options_.identity;
  socket_options.max_message_bytes = 64 << 20;
  socket_options.heartbeat_interval = std::chrono::milliseconds(1000);
  socket_options.heartbeat_timeout = std::chrono::milliseconds(60000);  // a peer that is stopped comes back
  socket_options.curve = plane->options_.curve;
  PW_ASSIGN_OR_RETURN(plane->socket_, transport::Socket::Open(socket_options));
  if (!plane->options_.bind_endpoint.empty()) {
    PW_ASSIGN_OR_RETURN(plane->endpoint_, plane->socket_->Bind(plane->options_.bind_endpoint));
  }
  PW_ASSIGN_OR_RETURN(plane->reactor_, transport::Reactor::Start({.name = "pw-data"}));
  if (!plane->options_.cluster.empty()) plane->SetCluster(plane->options_.cluster);
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

void DataPlane::SetCluster(const std::string& cluster) {
  transport::BulkSenderOptions bulk;
  bulk.pool.cluster = cluster;
  transport::BulkEmitter* const emitter = this;
  transport::BulkSink* const bulk_sink = this;
  auto sender = std::make_unique<transport::BulkSender>(bulk, emitter,
                                                        [this] { reactor_->Post([this] { sender_->Pump(8 << 20); }); });
  auto receiver = std::make_unique<transport::BulkReceiver>(cluster, emitter, bulk_sink);
  {
    std::lock_guard lock(mutex_);
    cluster_ = cluster;
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

Status DataPlane::ConnectTo(const std::string& host, const std::string& endpoint, const std::string& machine) {
  const std::string peer = PeerOfHost(host);
  {
    std::lock_guard lock(mutex_);
    if (peers_.contains(peer)) return OkStatus();
    peers_[peer] = Peer{!machine.empty() && machine == options_.machine, endpoint};
  }
  PW_RETURN_IF_ERROR(socket_->ConnectAs(endpoint, peer));
  return socket_->Send(peer, Frame(wire::Encode(wire::PeerHello{cluster_, options_.machine})));
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
  (void)socket_->Send(peer, Frame(wire::Encode(data)));
}

void DataPlane::PeerLost(const std::string& peer, const Status& status) {
  std::vector<Waiting> waiting;
  std::string endpoint;
  {
    std::lock_guard lock(mutex_);
    if (auto node = peers_.extract(peer); !node.empty()) endpoint = std::move(node.mapped().endpoint);
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

Status DataPlane::HandleMessage(std::string_view peer, Frames& frames) {
  if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
  PW_ASSIGN_OR_RETURN(wire::Head head, wire::DecodeHead(frames[0].bytes()));
  {
    std::lock_guard lock(mutex_);
    if (!sender_) {
      if (early_.size() >= kMaxEarly) return ResourceExhausted("too many messages before this host joined its cluster");
      early_.emplace_back(std::string(peer), std::move(frames));
      return OkStatus();
    }
  }
  switch (head.header.type) {
    case wire::Type::kData: {
      PW_ASSIGN_OR_RETURN(wire::Data data, wire::Decode<wire::Data>(head.body));
      if (!data.status.ok()) {
        sink_->OnTransferFailed(data.key, data.status);
        return OkStatus();
      }
      BulkPiece piece{data.key,           data.release, data.offset, data.size, data.total, std::move(data.segment),
                      data.segment_offset};
      return receiver_->OnPiece(peer, piece, frames.size() > 1 ? std::move(frames[1]) : Frame());
    }
    case wire::Type::kRelease: {
      PW_ASSIGN_OR_RETURN(wire::Release release, wire::Decode<wire::Release>(head.body));
      return sender_->OnRelease(peer, {release.key, release.token, release.status});
    }
    case wire::Type::kPeerHello: {
      PW_ASSIGN_OR_RETURN(wire::PeerHello hello, wire::Decode<wire::PeerHello>(head.body));
      if (hello.cluster != cluster_) {
        return FailedPrecondition("expected a peer of cluster " + cluster_ + ", got one of " + hello.cluster);
      }
      const std::string name(peer);
      const bool same_machine = !hello.machine.empty() && hello.machine == options_.machine;
      std::vector<Waiting> waiting;
      {
        std::lock_guard lock(mutex_);
        peers_[name] = Peer{same_machine, {}};
        auto it = waiting_.find(name);
        if (it != waiting_.end()) {
          waiting = std::move(it->second);
          waiting_.erase(it);
        }
      }
      for (Waiting& item : waiting) Deliver(name, same_machine, std::move(item));
      return OkStatus();
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

void DataPlane::OnPeerEvent(transport::Socket&, const transport::PeerEvent& event) {
  // A client that hung up frees its chunks at once. Loss of hosts is the controller's decision: it is told to all.
  if (event.kind == transport::PeerEventKind::kDisconnected && event.identity.starts_with("c/")) {
    PeerLost(event.identity, Unavailable("the client closed its data connection"));
  }
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
  return socket_->Send(peer, std::move(frames));
}

Status DataPlane::EmitRelease(std::string_view peer, const BulkRelease& release) {
  return socket_->Send(peer, Frame(wire::Encode(wire::Release{release.key, release.ticket, release.status})));
}

void DataPlane::OnBulk(std::string_view, const BulkPiece& piece, std::span<const std::byte> bytes, BulkLease lease) {
  sink_->OnBytes(piece.key, piece.offset, piece.total, bytes, std::move(lease));
}

}  // namespace pathways::dataplane
