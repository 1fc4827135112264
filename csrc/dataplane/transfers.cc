#include "csrc/dataplane/transfers.h"

#include <algorithm>
#include <optional>

#include "csrc/base/log_limit.h"

namespace pathways::dataplane {

using transport::BulkLease;
using transport::BulkPiece;
using transport::BulkSender;
using transport::Frame;
using transport::Frames;

namespace {

// A process that did not come to its tick for so long was stopped itself, and blames nobody for the silence.
constexpr std::chrono::seconds kStopped{3};
constexpr uint64_t kPumpBytes = 8 << 20;

std::string FailureHead(uint64_t key, const Status& status) {
  wire::Data data;
  data.key = key;
  data.status = status;
  return wire::Encode(data);
}

Link::Kept MessageOf(uint64_t ticket, uint64_t key, std::string head) {
  Frames frames;
  frames.emplace_back(std::move(head));
  return {ticket, key, std::move(frames)};
}

}  // namespace

void Transfers::Join(const std::string& cluster, uint64_t session) {
  transport::BulkSenderOptions bulk;
  bulk.pool.cluster = cluster;
  bulk.pool.owner = session;
  transport::BulkEmitter* const emitter = this;
  transport::BulkSink* const sink = this;
  auto sender = std::make_shared<BulkSender>(bulk, emitter, options_.pump_soon);
  receiver_ = std::make_unique<transport::BulkReceiver>(cluster, emitter, sink, options_.pinner);
  in_cluster_ = session != 0;
  std::lock_guard lock(links_.mutex);
  sender_ = std::move(sender);
}

void Transfers::Send(const std::string& peer, uint64_t key, ByteSource&& source, Done&& done) {
  const uint64_t size = source.size();
  Waiting item{key, std::move(source), std::move(done)};
  bool same_machine = false, too_many = false;
  Status refused;
  std::shared_ptr<BulkSender> sender;
  {
    std::lock_guard lock(links_.mutex);
    refused = links_.Gone(peer);
    if (refused.ok()) {
      Peer& entry = peers_[peer];
      too_many = peer.starts_with("c/") && entry.book.count(TransferState::kOpen) >= options_.limits.transfers;
      if (!too_many) {
        entry.book.Begin(key, size, std::chrono::steady_clock::now());
        const PeerLink* const link = links_.Find(peer);
        if (link == nullptr) {
          entry.waiting.push_back(std::move(item));
          return;
        }
        same_machine = link->same_machine;
        sender = sender_;
      }
    }
  }
  if (too_many) {
    refused = ResourceExhausted("expected at most " + std::to_string(options_.limits.transfers) +
                                " transfers from this host to a client that it has not taken yet, got one more; wait "
                                "for some results before asking for others");
  }
  if (refused.ok()) return Deliver(sender.get(), peer, same_machine, item);
  item.done(refused);
  if (too_many) sink_->OnSendFailed(peer, key, refused);
}

void Transfers::SendFailure(const std::string& peer, uint64_t key, const Status& status) {
  Waiting item{key, {nullptr, 0}, nullptr, status};
  bool full = false;
  {
    std::lock_guard lock(links_.mutex);
    if (!links_.Gone(peer).ok()) return;  // a peer that is gone needs no bad news
    Peer& entry = peers_[peer];
    const PeerLink* const link = links_.Find(peer);
    full = entry.waiting.size() + (link != nullptr ? link->kept() : 0) >= options_.limits.failures;
    if (!full && link == nullptr) {
      entry.waiting.push_back(std::move(item));
      return;
    }
  }
  if (full) return sink_->OnSendFailed(peer, key, status);
  Deliver(nullptr, peer, false, item);
}

void Transfers::Deliver(BulkSender* sender, const std::string& peer, bool same_machine, Waiting& item) {
  if (!item.failure.ok()) {
    (void)links_.Transmit(peer, MessageOf(0, item.key, FailureHead(item.key, item.failure)));
  } else if (sender == nullptr) {
    item.done(Cancelled("the data plane has stopped"));
  } else {
    sender->Send(peer, same_machine, item.key, std::move(item.source), std::move(item.done));
  }
}

void Transfers::Resume(const std::string& peer, uint64_t key, Status status) {
  // A sender that is gone has nothing to resume.
  (void)links_.Transmit(peer, MessageOf(0, key, wire::Encode(wire::Resume{key, std::move(status)})));
}

std::vector<std::pair<std::string, uint64_t>> Transfers::open() const {
  std::lock_guard lock(links_.mutex);
  std::vector<std::pair<std::string, uint64_t>> open;
  for (const auto& [name, peer] : peers_) {
    if (!peer.book.empty()) open.emplace_back(name, peer.book.count(TransferState::kOpen));
  }
  return open;
}

uint64_t Transfers::count(TransferState state) const {
  std::lock_guard lock(links_.mutex);
  uint64_t count = ended_[static_cast<size_t>(state)];
  for (const auto& [name, peer] : peers_) count += peer.book.count(state);
  return count;
}

void Transfers::PeerLost(const std::string& name, const Status& status) {
  ByName<Peer>::node_type lost;
  std::shared_ptr<BulkSender> sender;
  {
    std::lock_guard lock(links_.mutex);
    lost = peers_.extract(name);
    if (!lost.empty()) {
      TransferBook& book = lost.mapped().book;
      book.EndAll(TransferState::kFailed);
      for (size_t i = 0; i < ended_.size(); ++i) ended_[i] += book.count(static_cast<TransferState>(i));
    }
    sender = sender_;
  }
  if (!lost.empty()) {
    for (Waiting& item : lost.mapped().waiting) {
      if (item.done) item.done(status);
    }
  }
  if (sender) sender->PeerLost(name, status);
  if (receiver_) receiver_->PeerLost(name);
}

void Transfers::Stop() {
  ByName<Peer> peers;
  std::shared_ptr<BulkSender> sender;  // a Send on another thread may still hold it
  {
    std::lock_guard lock(links_.mutex);
    peers.swap(peers_);
    sender.swap(sender_);
  }
  for (auto& [name, peer] : peers) {
    for (Waiting& item : peer.waiting) {
      if (item.done) item.done(Cancelled("the data plane has stopped"));
    }
  }
}

void Transfers::OnHello(const PeerLinks::Greeting& greeting) {
  const std::string& name = greeting.peer;
  std::vector<Waiting> waiting;
  std::shared_ptr<BulkSender> sender;
  {
    std::lock_guard lock(links_.mutex);
    if (const auto at = peers_.find(name); at != peers_.end()) {
      waiting.swap(at->second.waiting);
      if (greeting.forgotten) at->second.book.EndAll(TransferState::kFailed);
    }
    sender = sender_;
  }
  if (greeting.forgotten) {
    if (sender) sender->PeerLost(name, Unavailable("'" + Printable(name) + "' has started again"));
    if (receiver_) receiver_->PeerLost(name);
  }
  for (Waiting& item : waiting) Deliver(sender.get(), name, greeting.same_machine, item);
}

Status Transfers::OnData(const PeerLinks::Sender& from, const wire::Head& head, Frames& frames) {
  const std::string& peer = from.name;
  PW_ASSIGN_OR_RETURN(wire::Data data, wire::Decode<wire::Data>(head.body));
  Status allowed = sink_->MaySend(peer, data.key);
  if (peer.starts_with("c/") && peer != PeerNames::OfClient(static_cast<uint32_t>(wire::ClientOf(data.key)))) {
    allowed = Status(Code::kPermissionDenied, "a client's transfers must have its own keys");
  }
  if (!allowed.ok()) {
    // Its transfer ends, and makes room for what it may send.
    if (data.status.ok()) (void)EmitRelease(peer, {data.key, data.release, allowed});
    return allowed;
  }
  if (!data.status.ok()) {
    sink_->OnTransferFailed(peer, data.key, data.status);
    return OkStatus();
  }
  // Whoever waits for these bytes would wait for ever.
  const auto lost = [&](const Status& status) {
    sink_->OnPieceLost(peer, data.key, data.size, data.total, status);
    return status;
  };
  if (!data.segment.empty() && in_cluster_ &&
      (from.session == 0 || transport::SegmentOwner(data.segment) != from.session)) {
    const Status status(Code::kPermissionDenied, "a segment of shared memory must be named by its owner");
    (void)EmitRelease(peer, {data.key, data.release, status});
    return lost(status);
  }
  BulkPiece piece{data.key,           data.release, data.offset, data.size, data.total, std::move(data.segment),
                  data.segment_offset};
  Status read = receiver_->OnPiece(peer, piece, frames.size() > 1 ? std::move(frames[1]) : Frame());
  return read.ok() ? read : lost(read);
}

Status Transfers::OnRelease(const std::string& name, const wire::Release& release) {
  std::shared_ptr<BulkSender> sender;
  Link::Dropped dropped;
  {
    std::lock_guard lock(links_.mutex);
    sender = sender_;
    if (PeerLink* const link = links_.Find(name)) link->SeenTicket(release.token, &dropped);
  }
  dropped.clear();
  if (!sender) return OkStatus();
  PW_ASSIGN_OR_RETURN(const transport::BulkProgress progress,
                      sender->OnRelease(name, {release.key, release.token, release.status, release.deferred != 0}));
  {
    std::lock_guard lock(links_.mutex);
    if (const auto at = peers_.find(name); at != peers_.end()) {
      TransferBook& book = at->second.book;
      book.Progress(release.key, progress.bytes);
      if (!release.status.ok()) {
        book.End(release.key, TransferState::kFailed);
      } else if (progress.over) {
        book.End(release.key, TransferState::kDone);
      }
    }
  }
  // The receiver counts what comes of a transfer that it refused.
  if (progress.cut_short) SendFailure(name, release.key, release.status);
  return OkStatus();
}

Status Transfers::OnResume(const std::string& name, const wire::Resume& resume) {
  std::shared_ptr<BulkSender> sender;
  {
    std::lock_guard lock(links_.mutex);
    sender = sender_;
  }
  if (!sender || !sender->OnResume(name, resume.key, resume.status)) return OkStatus();
  {
    std::lock_guard lock(links_.mutex);
    if (const auto at = peers_.find(name); at != peers_.end()) at->second.book.End(resume.key, TransferState::kFailed);
  }
  SendFailure(name, resume.key, resume.status);
  return OkStatus();
}

void Transfers::OnTick(Time now) {
  struct Failed {
    std::string peer;
    TransferBook::Stalled transfer;
    Done done;
  };
  std::vector<Failed> failed;
  std::shared_ptr<BulkSender> sender;
  Link::Dropped dropped;
  if (last_tick_ != Time() && now - last_tick_ > kStopped) awake_since_ = now;
  last_tick_ = now;
  {
    std::lock_guard lock(links_.mutex);
    sender = sender_;
    for (auto& [name, peer] : peers_) {
      PeerLink* const link = links_.Find(name);
      const Time heard = std::max(awake_since_, link != nullptr ? link->heard() : Time());
      for (auto& stalled : peer.book.TakeStalled(name, heard, options_.timeout, now)) {
        const uint64_t key = stalled.key;
        Failed item{name, std::move(stalled), nullptr};
        // The news takes the place of the bytes, whose memory somebody waits for.
        if (link != nullptr) link->Replace(key, FailureHead(key, item.transfer.status), &dropped);
        const auto waits = std::find_if(peer.waiting.begin(), peer.waiting.end(),
                                        [&](const Waiting& w) { return w.key == key && w.failure.ok(); });
        if (waits != peer.waiting.end()) {
          item.done = std::move(waits->done);
          peer.waiting.erase(waits);
        }
        failed.push_back(std::move(item));
      }
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

void Transfers::Pump() {
  std::shared_ptr<BulkSender> sender;
  {
    std::lock_guard lock(links_.mutex);
    sender = sender_;
  }
  if (sender) sender->Pump(kPumpBytes);
}

Status Transfers::EmitPiece(std::string_view peer, const BulkPiece& piece, Frame payload) {
  wire::Data data;
  data.key = piece.key;
  data.offset = piece.offset;
  data.size = piece.size;
  data.total = piece.total;
  data.segment = piece.segment;
  data.segment_offset = piece.segment_offset;
  data.release = piece.ticket;
  Link::Kept message = MessageOf(piece.ticket, piece.key, wire::Encode(data));
  if (piece.segment.empty()) message.frames.push_back(std::move(payload));
  Status sent = links_.Transmit(peer, std::move(message));
  if (sent.ok()) return sent;
  bool gone = false;  // then nobody waits
  {
    std::lock_guard lock(links_.mutex);
    gone = !links_.Gone(peer).ok();
    if (const auto at = peers_.find(peer); at != peers_.end()) at->second.book.End(piece.key, TransferState::kFailed);
  }
  if (!gone) sink_->OnSendFailed(std::string(peer), piece.key, sent);
  return sent;
}

Status Transfers::EmitRelease(std::string_view peer, const transport::BulkRelease& release) {
  const uint8_t deferred = release.deferred ? 1 : 0;
  return links_.Transmit(
      peer,
      MessageOf(0, release.key, wire::Encode(wire::Release{release.key, release.ticket, release.status, deferred})));
}

void Transfers::OnBulk(std::string_view peer, const BulkPiece& piece, std::span<const std::byte> bytes,
                       BulkLease lease) {
  sink_->OnBytes(peer, piece.key, piece.offset, piece.total, bytes, std::move(lease));
}

}  // namespace pathways::dataplane
