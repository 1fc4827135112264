#include "csrc/dataplane/data_plane.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace pathways::dataplane {

using transport::Frame;
using transport::Frames;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kTick{500};
// Messages of one peer that libzmq has read and this process has not. Beyond them the peer's connection waits, and with
// it ZeroMQ's pings: should the data thread not come to it for seconds, the connection is made anew.
constexpr int kMaxReceived = 1000;
constexpr std::chrono::seconds kLookAtStrangers{1};
// A process that did not come to its tick for so long was stopped itself, and blames nobody for the silence.
constexpr std::chrono::seconds kStopped{3};

wire::Data FailureOf(uint64_t key, const Status& status) {
  wire::Data data;
  data.key = key;
  data.status = status;
  return data;
}

// The news that a transfer failed takes the place of its bytes, whose memory somebody waits for.
void LetGo(Link& link, const TransferBook::Stalled& transfer, Link::Dropped* dropped) {
  uint64_t sequence = link.first_kept();
  for (Link::Kept& message : link.kept()) {
    if (message.key == transfer.key && message.frames.size() > 1) {
      std::string head = wire::Encode(FailureOf(transfer.key, transfer.status));
      wire::PatchSequence(head, sequence);
      dropped->push_back(std::exchange(message.frames, {}));
      message.frames.emplace_back(std::move(head));
    }
    ++sequence;
  }
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
  std::unique_ptr<DataPlane> plane(new DataPlane(std::move(options), sink));
  // A connection is given up well before its transfers are, so that they can go by another one.
  const auto connection_timeout = std::min(plane->options_.connection_timeout, plane->options_.transfer_timeout / 3);
  transport::SocketOptions socket_options;
  socket_options.kind = transport::SocketKind::kRouter;
  socket_options.max_message_bytes = wire::kHeaderBytes + wire::kMaxBodyBytes;  // payloads have less
  // Beyond them messages wait in the link, and are sent again at the next tick.
  socket_options.send_hwm = static_cast<int>(plane->options_.limits.messages);
  socket_options.receive_hwm = kMaxReceived;
  socket_options.stranger_limits = transport::UsualStrangerLimits();
  socket_options.heartbeat_interval = std::min(connection_timeout / 4, std::chrono::milliseconds(1000));
  socket_options.heartbeat_timeout = connection_timeout;
  socket_options.handshake_timeout = connection_timeout;
  socket_options.connect_timeout = connection_timeout;
  socket_options.curve = plane->options_.curve;
  PW_ASSIGN_OR_RETURN(plane->socket_, transport::Socket::Open(socket_options));
  if (!plane->options_.bind_endpoint.empty()) {
    PW_ASSIGN_OR_RETURN(plane->endpoint_, plane->socket_->Bind(plane->options_.bind_endpoint));
  }
  PW_ASSIGN_OR_RETURN(plane->reactor_, transport::Reactor::Start({.name = "pw-data"}));
  if (!plane->options_.membership.cluster.empty()) plane->Join(plane->options_.membership);
  PW_RETURN_IF_ERROR(plane->reactor_->Add(plane->socket_, plane.get()));
  plane->Every(std::min(kTick, plane->options_.transfer_timeout / 4), [raw = plane.get()] { raw->OnTick(); });
  if (!plane->endpoint_.empty()) {
    plane->reactor_->AddTimer(kLookAtStrangers, kLookAtStrangers, [raw = plane.get()] { raw->DropStrangers(); });
  }
  return plane;
}

DataPlane::DataPlane(DataPlaneOptions options, DataSink* sink) : options_(std::move(options)), sink_(sink) {}

DataPlane::~DataPlane() { Stop(); }

void DataPlane::Stop() {
  if (!reactor_) return;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  if (socket_) socket_->Close();
  reactor_->Stop();
  std::unordered_map<std::string, Peer> peers;
  std::shared_ptr<transport::BulkSender> sender;
  {
    std::lock_guard lock(mutex_);
    peers.swap(peers_);
    sender.swap(sender_);  // a Send on another thread may still hold it
  }
  for (auto& [name, peer] : peers) {
    for (Waiting& item : peer.waiting) {
      if (item.done) item.done(Cancelled("the data plane has stopped"));
    }
  }
  peers.clear();  // with the shares of borrowed memory, for which the sender would wait
}

void DataPlane::Join(Membership membership) {
  transport::BulkSenderOptions bulk;
  bulk.pool.cluster = membership.cluster;
  bulk.pool.owner = membership.session;
  transport::BulkEmitter* const emitter = this;
  transport::BulkSink* const bulk_sink = this;
  auto sender = std::make_shared<transport::BulkSender>(bulk, emitter, [this] {
    reactor_->Post([this] {
      std::shared_ptr<transport::BulkSender> pumped;
      {
        std::lock_guard lock(mutex_);
        pumped = sender_;
      }
      if (pumped) pumped->Pump(8 << 20);
    });
  });
  auto receiver = std::make_shared<transport::BulkReceiver>(membership.cluster, emitter, bulk_sink, options_.pinner);
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

void DataPlane::SetIdentityAt(const std::string& host, std::string identity) {
  std::lock_guard lock(mutex_);
  identities_[host] = std::move(identity);
}

Status DataPlane::ConnectTo(const std::string& host, const std::string& endpoint, const std::string& machine,
                            uint64_t session) {
  const std::string name = PeerOfHost(host);
  std::lock_guard lock(mutex_);
  if (stopped_) return Unavailable("the data plane has stopped");
  if (auto at = peers_.find(name); at != peers_.end() && at->second.reachable) return OkStatus();
  std::string identity = membership_.identity;
  if (membership_.session != 0) {
    const auto known = identities_.find(host);
    if (known == identities_.end()) return FailedPrecondition("the controller has given no name for calls to it");
    identity = known->second;
  }
  gone_.erase(name);
  const std::string route = NewRoute();
  PW_RETURN_IF_ERROR(socket_->ConnectAs(endpoint, route, identity));
  Peer& peer = PeerEntry(name);
  peer.identity = std::move(identity);
  peer.reachable = true;
  peer.route = route;
  peer.session = session;
  names_[route] = name;
  peer.same_machine = !machine.empty() && machine == options_.machine;
  peer.endpoint = endpoint;
  (void)SayHello(peer, false);
  return OkStatus();
}

DataPlane::Peer& DataPlane::PeerEntry(const std::string& name) {
  return peers_.try_emplace(name, numbers_() | 1).first->second;
}

Status DataPlane::GoneStatus(const std::string& name) const {
  if (stopped_) return Cancelled("the data plane has stopped");
  const auto at = gone_.find(name);
  return at == gone_.end() ? OkStatus() : at->second.status;
}

void DataPlane::Send(const std::string& peer, uint64_t key, ByteSource source,
                     std::function<void(const Status&)> done) {
  const uint64_t size = source.size();
  Waiting item{key, std::move(source), std::move(done)};
  bool same_machine = false, too_many = false;
  Status gone;
  {
    std::lock_guard lock(mutex_);
    gone = GoneStatus(peer);
    too_many = gone.ok() && peer.starts_with("c/") &&
               PeerEntry(peer).transfers.count(TransferState::kOpen) >= options_.limits.transfers;
    if (too_many) {
      gone = ResourceExhausted("expected at most " + std::to_string(options_.limits.transfers) +
                               " transfers from this host to a client that it has not taken yet, got one more; wait "
                               "for some results before asking for others");
    }
    if (gone.ok()) {
      Peer& entry = PeerEntry(peer);
      entry.transfers.Begin(key, size, Clock::now());
      if (!entry.reachable) {
        entry.waiting.push_back(std::move(item));
        return;
      }
      same_machine = entry.same_machine;
    }
  }
  if (!gone.ok()) {
    item.done(gone);
    if (too_many) sink_->OnSendFailed(peer, key, gone);
    return;
  }
  Deliver(peer, same_machine, std::move(item));
}

void DataPlane::SendFailure(const std::string& peer, uint64_t key, const Status& status) {
  Waiting item{key, {nullptr, 0}, nullptr, status};
  bool full = false;
  {
    std::lock_guard lock(mutex_);
    if (!GoneStatus(peer).ok()) return;  // a peer that is gone needs no bad news
    Peer& entry = PeerEntry(peer);
    full = entry.waiting.size() + entry.link.kept().size() >= options_.limits.failures;
    if (!full && !entry.reachable) {
      entry.waiting.push_back(std::move(item));
      return;
    }
  }
  if (full) return sink_->OnSendFailed(peer, key, status);
  Deliver(peer, false, std::move(item));
}

void DataPlane::Resume(const std::string& peer, uint64_t key, Status status) {
  Frames frames;
  frames.emplace_back(wire::Encode(wire::Resume{key, std::move(status)}));
  (void)Transmit(peer, {0, key, std::move(frames)});  // a sender that is gone has nothing to resume
}

void DataPlane::Deliver(const std::string& peer, bool same_machine, Waiting item) {
  if (item.failure.ok()) {
    std::shared_ptr<transport::BulkSender> sender;
    {
      std::lock_guard lock(mutex_);
      sender = sender_;
    }
    if (sender == nullptr) return item.done(Cancelled("the data plane has stopped"));
    sender->Send(peer, same_machine, item.key, std::move(item.source), std::move(item.done));
    return;
  }
  Frames frames;
  frames.emplace_back(wire::Encode(FailureOf(item.key, item.failure)));
  (void)Transmit(peer, {0, item.key, std::move(frames)});
}

Status DataPlane::Transmit(std::string_view name, Link::Kept message) {
  std::lock_guard lock(mutex_);
  const auto at = peers_.find(std::string(name));
  if (at == peers_.end() || !at->second.reachable) {
    const Status gone = GoneStatus(std::string(name));
    return gone.ok() ? NotFound("no peer '" + Printable(name) + "' has called this process") : gone;
  }
  Peer& peer = at->second;
  if (std::string* head = message.frames[0].text()) wire::PatchSequence(*head, peer.link.next_sequence());
  for (size_t i = 1; i < message.frames.size(); ++i) peer.unread.Count(message.frames[i]);
  Frames frames = transport::ShareAll(message.frames);
  peer.link.Keep(std::move(message));
  if (peer.unread.bytes() > options_.limits.bytes(at->first) && !std::exchange(peer.hung_up_on, true)) {
    reactor_->Post([this, lost = at->first] { HangUp(lost); });
  }
  Status sent = socket_->Send(peer.route, std::move(frames));
  // libzmq has no room: what it lacks is sent again at the next tick.
  if (sent.code() == Code::kResourceExhausted) {
    peer.answers.OweAgain();
    return OkStatus();
  }
  // Nobody is at the other end just now: it is sent again when somebody is.
  return sent.code() == Code::kNotFound ? OkStatus() : sent;
}

void DataPlane::PeerLost(const std::string& name, const Status& status, uint64_t session) {
  std::unordered_map<std::string, Peer>::node_type lost;
  std::shared_ptr<transport::BulkSender> sender;
  std::shared_ptr<transport::BulkReceiver> receiver;
  {
    std::lock_guard lock(mutex_);
    if (session != 0) {
      uint64_t& first = sessions_[name];
      first = std::max(first, session + 1);
      if (const auto at = peers_.find(name); at != peers_.end() && at->second.session > session) return;
    }
    lost = peers_.extract(name);
    gone_[name] = {status, lost.empty() ? 0 : lost.mapped().link.theirs()};
    if (!lost.empty()) {
      names_.erase(lost.mapped().route);
      TransferBook& transfers = lost.mapped().transfers;
      transfers.EndAll(TransferState::kFailed);
      for (size_t i = 0; i < ended_.size(); ++i) ended_[i] += transfers.count(static_cast<TransferState>(i));
    }
    sender = sender_;
    receiver = receiver_;
  }
  if (!lost.empty()) {
    for (Waiting& item : lost.mapped().waiting) {
      if (item.done) item.done(status);
    }
    // libzmq would knock at a dead host's door for ever; an endpoint that is gone already is no matter.
    if (!lost.mapped().endpoint.empty()) (void)socket_->Disconnect(lost.mapped().endpoint);
    lost = {};
  }
  if (sender) sender->PeerLost(name, status);
  if (receiver) receiver->PeerLost(name);
}

void DataPlane::HandleMessages(MessageHandler handler) {
  auto shared = std::make_shared<const MessageHandler>(std::move(handler));
  std::lock_guard lock(mutex_);
  handler_ = std::move(shared);
}

void DataPlane::Every(std::chrono::milliseconds period, std::function<void()> task) {
  reactor_->AddTimer(period, period, std::move(task));
}

std::vector<std::pair<std::string, uint64_t>> DataPlane::open_transfers() const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, uint64_t>> open;
  for (const auto& [name, peer] : peers_) {
    if (!peer.transfers.empty()) open.emplace_back(name, peer.transfers.count(TransferState::kOpen));
  }
  return open;
}

uint64_t DataPlane::unread_bytes(const std::string& peer) const {
  std::lock_guard lock(mutex_);
  const auto at = peers_.find(peer);
  return at == peers_.end() ? 0 : at->second.unread.bytes();
}

uint64_t DataPlane::transfers(TransferState state) const {
  std::lock_guard lock(mutex_);
  uint64_t count = ended_[static_cast<size_t>(state)];
  for (const auto& [name, peer] : peers_) count += peer.transfers.count(state);
  return count;
}

// Tells silent peers how far we are, so that they say how far they are, and ends what has waited too long.
void DataPlane::OnTick() {
  struct Failed {
    std::string peer;
    TransferBook::Stalled transfer;
    std::function<void(const Status&)> done;
  };
  std::vector<Failed> failed;
  std::shared_ptr<transport::BulkSender> sender;
  Link::Dropped dropped;
  if (listens_again_) listens_again_ = !ListenAgain();
  const auto now = Clock::now();
  const bool was_stopped = last_tick_ != Clock::time_point() && now - last_tick_ > kStopped;
  last_tick_ = now;
  {
    std::lock_guard lock(mutex_);
    sender = sender_;
    for (auto& [name, peer] : peers_) {
      if (was_stopped) peer.transfers.Heard(now);
      for (auto& stalled : peer.transfers.TakeStalled(name, options_.transfer_timeout, now)) {
        Failed item{name, std::move(stalled), nullptr};
        LetGo(peer.link, item.transfer, &dropped);
        const auto waits = std::find_if(peer.waiting.begin(), peer.waiting.end(),
                                        [&](const Waiting& w) { return w.key == item.transfer.key && w.failure.ok(); });
        if (waits != peer.waiting.end()) {
          item.done = std::move(waits->done);
          peer.waiting.erase(waits);
        }
        failed.push_back(std::move(item));
      }
      peer.hung_up_on = false;
      if (!peer.reachable) continue;
      const Answers::Owed owed = peer.answers.Take();
      if (owed.word) AnswerWord(peer, owed.hello, owed.lost);
      if (owed.again) AnswerAgain(peer);
      bool waits = peer.doubted > 0;
      peer.doubted = std::max(peer.doubted - 1, 0);
      if (!peer.transfers.empty() || !peer.link.kept().empty()) {
        waits = true;
      } else if (peer.link.untold() > 0) {
        SaySeen(peer, false);
      }
      if (!waits) continue;
      // libzmq makes a connection again that was cut, but not one on which it has read what is no message.
      const Status said = SayHello(peer, false);
      if (said.code() == Code::kNotFound && !peer.endpoint.empty()) CallAgain(name, peer);
    }
  }
  dropped.clear();
  for (Failed& item : failed) {
    const auto& [key, status] = item.transfer;
    if (item.done) item.done(status);
    if (sender) sender->Cancel(item.peer, key, status);
    SendFailure(item.peer, key, status);  // should it come back
    sink_->OnSendFailed(item.peer, key, status);
  }
}

Status DataPlane::EmitPiece(std::string_view peer, const transport::BulkPiece& piece, Frame payload) {
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
  Status sent = Transmit(peer, {piece.ticket, piece.key, std::move(frames)});
  if (sent.ok()) return sent;
  bool gone = false;  // then nobody waits
  {
    std::lock_guard lock(mutex_);
    gone = !GoneStatus(std::string(peer)).ok();
    if (const auto at = peers_.find(std::string(peer)); at != peers_.end()) {
      at->second.transfers.End(piece.key, TransferState::kFailed);
    }
  }
  if (!gone) sink_->OnSendFailed(std::string(peer), piece.key, sent);
  return sent;
}

Status DataPlane::EmitRelease(std::string_view peer, const transport::BulkRelease& release) {
  Frames frames;
  const uint8_t deferred = release.deferred ? 1 : 0;
  frames.emplace_back(wire::Encode(wire::Release{release.key, release.ticket, release.status, deferred}));
  return Transmit(peer, {0, release.key, std::move(frames)});
}

}  // namespace pathways::dataplane
