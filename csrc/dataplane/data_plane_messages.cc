// DataPlane: what arrives.
#include <algorithm>
#include <cstdio>

#include "csrc/base/clock.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/transport/keys.h"

namespace pathways::dataplane {

using transport::BulkLease;
using transport::BulkPiece;
using transport::Frame;
using transport::Frames;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kMaxEarly = 4096;
constexpr uint64_t kMaxEarlyBytes = uint64_t{64} << 20;
// Beyond so many messages a peer is told at once how many were taken; below, by the next tick or answer.
constexpr uint64_t kMaxUntold = 32;
// libzmq may take messages for a moment after it has ended a connection for good.
constexpr int kDoubtedTicks = 4;

Link::Statement StatementOf(const wire::PeerHello& hello) {
  return {hello.number, hello.other, hello.received, hello.sent, hello.anew != 0};
}

}  // namespace

void DataPlane::Refused(std::string_view peer, const Status& status) {
  const auto line = log_.Take(peer, "refused a data message from " + Printable(peer, 64) + ": " + status.ToString(),
                              static_cast<uint64_t>(NowMs()));
  if (line) std::fprintf(stderr, "ptpathways: %s\n", line->c_str());
}

void DataPlane::OnMessage(transport::Socket&, std::string_view peer, Frames& frames) {
  if (Status status = HandleMessage(peer, frames); !status.ok()) Refused(peer, status);
}

Status DataPlane::HandleMessage(std::string_view route, Frames& frames) {
  if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
  PW_ASSIGN_OR_RETURN(wire::Head head, wire::DecodeHead(frames[0].bytes()));
  PW_RETURN_IF_ERROR(wire::CheckPayloads(frames.size() - 1));
  std::string peer;
  uint64_t session = 0;
  std::shared_ptr<const MessageHandler> handler;
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
    handler = handler_;
  }
  const wire::Type type = head.header.type;
  if (type == wire::Type::kPeerHello) {
    PW_ASSIGN_OR_RETURN(wire::PeerHello hello, wire::Decode<wire::PeerHello>(head.body));
    return OnPeerHello(route, hello, frames[0]);
  }
  if (peer.empty() && route.starts_with("to/")) return OkStatus();  // of a connection that was made anew since
  if (peer.empty()) {
    return Status(Code::kPermissionDenied, "expected PEER_HELLO as the first message of a data connection, got " +
                                               std::string(wire::TypeName(type)));
  }
  if (type == wire::Type::kPeerSeen) {
    PW_ASSIGN_OR_RETURN(wire::PeerSeen seen, wire::Decode<wire::PeerSeen>(head.body));
    return OnPeerSeen(peer, seen);
  }
  if (type != wire::Type::kData && type != wire::Type::kRelease && type != wire::Type::kResume &&
      type != wire::Type::kCollectiveChunk && type != wire::Type::kCollectiveTaken) {
    return InvalidArgument("a data connection does not carry " + std::string(wire::TypeName(type)));
  }
  PW_ASSIGN_OR_RETURN(const bool fresh, TakeNumbered(peer, head.header.sequence));
  if (!fresh) return OkStatus();
  if (peer.starts_with("c/") && (type == wire::Type::kCollectiveChunk || type == wire::Type::kCollectiveTaken)) {
    return Status(Code::kPermissionDenied, "a client takes part in no collectives");
  }
  if (type == wire::Type::kData) return OnData(peer, session, head, frames);
  if (type == wire::Type::kRelease) {
    PW_ASSIGN_OR_RETURN(wire::Release release, wire::Decode<wire::Release>(head.body));
    return OnRelease(peer, release);
  }
  if (type == wire::Type::kResume) {
    PW_ASSIGN_OR_RETURN(wire::Resume resume, wire::Decode<wire::Resume>(head.body));
    return OnResume(peer, resume);
  }
  if (!handler) return FailedPrecondition("this process takes part in no collectives");
  return (*handler)(peer, head, frames);
}

Status DataPlane::OnData(const std::string& peer, uint64_t session, const wire::Head& head, Frames& frames) {
  PW_ASSIGN_OR_RETURN(wire::Data data, wire::Decode<wire::Data>(head.body));
  Status allowed = sink_->MaySend(peer, data.key);
  if (peer.starts_with("c/") && peer != PeerOfClient(static_cast<uint32_t>(wire::ClientOf(data.key)))) {
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
  if (!data.segment.empty() && membership_.session != 0 &&
      (session == 0 || transport::SegmentOwner(data.segment) != session)) {
    const Status status(Code::kPermissionDenied, "a segment of shared memory must be named by its owner");
    (void)EmitRelease(peer, {data.key, data.release, status});
    return lost(status);
  }
  std::shared_ptr<transport::BulkReceiver> receiver;
  {
    std::lock_guard lock(mutex_);
    receiver = receiver_;
  }
  BulkPiece piece{data.key,           data.release, data.offset, data.size, data.total, std::move(data.segment),
                  data.segment_offset};
  Status read = receiver->OnPiece(peer, piece, frames.size() > 1 ? std::move(frames[1]) : Frame());
  return read.ok() ? read : lost(read);
}

Result<bool> DataPlane::TakeNumbered(const std::string& name, uint64_t sequence) {
  std::lock_guard lock(mutex_);
  const auto at = peers_.find(name);
  if (at != peers_.end() && at->second.link.kept().size() >= options_.limits.messages) {
    // It is not taken, so the peer keeps it and sends it again once it has read.
    at->second.transfers.Heard(Clock::now());
    if (!std::exchange(at->second.full, true)) {
      Refused(name, ResourceExhausted("expected it to take what it is sent here, of which at most " +
                                      std::to_string(options_.limits.messages) +
                                      " messages are kept for it; nothing more of it is taken until it reads"));
    }
    return false;
  }
  const auto verdict = at == peers_.end() ? Link::Verdict::kStranger : at->second.link.Take(sequence);
  if (verdict == Link::Verdict::kStranger) {
    if (gone_.contains(name)) return false;  // it does not know yet
    return FailedPrecondition("expected PEER_HELLO first");
  }
  Peer& peer = at->second;
  peer.transfers.Heard(Clock::now());
  if (verdict == Link::Verdict::kGap && peer.link.AskForGap()) SaySeen(peer, true);
  if (peer.link.untold() >= kMaxUntold) SaySeen(peer, false);
  return verdict == Link::Verdict::kNew;
}

Status DataPlane::OnRelease(const std::string& name, const wire::Release& release) {
  std::shared_ptr<transport::BulkSender> sender;
  Link::Dropped dropped;
  {
    std::lock_guard lock(mutex_);
    sender = sender_;
    if (auto at = peers_.find(name); at != peers_.end()) {
      at->second.link.SeenTicket(release.token, &dropped);
    }
  }
  dropped.clear();
  if (!sender) return OkStatus();
  PW_ASSIGN_OR_RETURN(const transport::BulkProgress progress,
                      sender->OnRelease(name, {release.key, release.token, release.status, release.deferred != 0}));
  {
    std::lock_guard lock(mutex_);
    if (auto at = peers_.find(name); at != peers_.end()) {
      TransferBook& transfers = at->second.transfers;
      transfers.Progress(release.key, progress.bytes);
      if (!release.status.ok()) {
        transfers.End(release.key, TransferState::kFailed);
      } else if (progress.over) {
        transfers.End(release.key, TransferState::kDone);
      }
    }
  }
  // The receiver counts what comes of a transfer that it refused.
  if (progress.cut_short) SendFailure(name, release.key, release.status);
  return OkStatus();
}

Status DataPlane::OnResume(const std::string& name, const wire::Resume& resume) {
  std::shared_ptr<transport::BulkSender> sender;
  {
    std::lock_guard lock(mutex_);
    sender = sender_;
  }
  if (!sender || !sender->OnResume(name, resume.key, resume.status)) return OkStatus();
  {
    std::lock_guard lock(mutex_);
    if (auto at = peers_.find(name); at != peers_.end()) at->second.transfers.End(resume.key, TransferState::kFailed);
  }
  SendFailure(name, resume.key, resume.status);
  return OkStatus();
}

Status DataPlane::OnPeerSeen(const std::string& name, const wire::PeerSeen& seen) {
  Link::Dropped dropped;
  std::lock_guard lock(mutex_);
  const auto at = peers_.find(name);
  if (at == peers_.end()) {
    return gone_.contains(name) ? OkStatus() : FailedPrecondition("expected PEER_HELLO first");
  }
  Peer& peer = at->second;
  peer.transfers.Heard(Clock::now());
  if (seen.number != peer.link.number()) return OkStatus();  // of a link that has started again since
  if (!peer.link.HasSent(seen.received)) {
    return InvalidArgument("a peer has seen more messages than it was sent");
  }
  peer.link.Seen(seen.received, &dropped);
  peer.full = false;
  if (seen.lost) AnswerAgain(peer);
  return OkStatus();
}

Result<wire::Identity> DataPlane::IdentityOf(std::string_view route, const Frame& frame) {
  {
    std::lock_guard lock(mutex_);
    const auto known = names_.find(std::string(route));
    // Whom this process called; the listener's key has been checked.
    if (known != names_.end() && !peers_.at(known->second).endpoint.empty()) {
      return wire::Identity{known->second, peers_.at(known->second).session};
    }
  }
  wire::Identity identity{std::string(route), 0};
  if (membership_.session != 0) {
    if (membership_.key.empty()) return Status(Code::kPermissionDenied, "nobody calls a client");
    PW_ASSIGN_OR_RETURN(identity, wire::CheckIdentity(membership_.key, route));
  }
  const bool client = identity.name.starts_with("c/");
  if ((!client && !identity.name.starts_with("w/")) ||
      !transport::SpeaksAs(frame, client ? transport::Role::kClient : transport::Role::kWorker)) {
    return Status(Code::kPermissionDenied, "a peer's name on data connections must be that of its role");
  }
  return identity;
}

Status DataPlane::OnPeerHello(std::string_view route, const wire::PeerHello& hello, const Frame& frame) {
  if (hello.cluster != membership_.cluster) {
    return FailedPrecondition("expected a peer of cluster " + membership_.cluster + ", got one of another");
  }
  if (hello.number == 0) return InvalidArgument("a link's number must not be 0");
  PW_ASSIGN_OR_RETURN(const wire::Identity identity, IdentityOf(route, frame));
  const std::string& name = identity.name;
  bool fresh = false;
  Link::Dropped dropped;
  Link::Heard heard;
  std::vector<Waiting> waiting;
  bool same_machine = false;
  std::shared_ptr<transport::BulkSender> sender;
  std::shared_ptr<transport::BulkReceiver> receiver;
  {
    std::lock_guard lock(mutex_);
    if (const auto gone = gone_.find(name); gone != gone_.end()) {
      if (gone->second.number == hello.number) return OkStatus();  // it does not know yet
      gone_.erase(gone);
    }
    Peer& peer = PeerEntry(name);
    if (peer.endpoint.empty()) {
      uint64_t& first = sessions_[name];
      if (identity.session < first) return FailedPrecondition("the session of this name is over");
      first = identity.session;
      fresh = peer.route != route;
      if (fresh) names_.erase(peer.route);
      peer.route = std::string(route);
      peer.session = identity.session;
      names_[peer.route] = name;
    }
    heard = peer.link.Hear(StatementOf(hello), numbers_() | 1, &dropped);
    peer.transfers.Heard(Clock::now());
    if (peer.endpoint.empty()) peer.same_machine = !hello.machine.empty() && hello.machine == options_.machine;
    same_machine = peer.same_machine;
    peer.reachable = true;
    waiting.swap(peer.waiting);
    if (heard.forgotten) peer.transfers.EndAll(TransferState::kFailed);
    AnswerWord(peer, heard.unknown, heard.lost);
    if (heard.send_again) AnswerAgain(peer);
    sender = sender_;
    receiver = receiver_;
  }
  if (fresh) sink_->OnPeer(name, identity.session);
  if (heard.forgotten) {
    if (sender) sender->PeerLost(name, Unavailable("'" + Printable(name) + "' has started again"));
    if (receiver) receiver->PeerLost(name);
  }
  for (Waiting& item : waiting) Deliver(name, same_machine, std::move(item));
  return OkStatus();
}

void DataPlane::OnPeerEvent(transport::Socket&, const transport::PeerEvent& event) {
  if (event.kind == transport::PeerEventKind::kDisconnected) {
    // Whose connection it was is not said, so those who were called are asked whether they are still there.
    std::lock_guard lock(mutex_);
    for (auto& [name, peer] : peers_) {
      if (!peer.endpoint.empty()) peer.doubted = kDoubtedTicks;
    }
  }
  if (event.kind != transport::PeerEventKind::kConnected) return;
  // A connection of ours is there, perhaps again. Its endpoint may be reported by another name than it was given.
  std::lock_guard lock(mutex_);
  if (!endpoint_.empty() && event.endpoint == endpoint_) return;
  const bool named = std::any_of(peers_.begin(), peers_.end(),
                                 [&](const auto& item) { return item.second.endpoint == event.endpoint; });
  for (auto& [name, peer] : peers_) {
    if (!peer.endpoint.empty() && (!named || peer.endpoint == event.endpoint)) (void)SayHello(peer, true);
  }
}

void DataPlane::OnBulk(std::string_view peer, const BulkPiece& piece, std::span<const std::byte> bytes,
                       BulkLease lease) {
  sink_->OnBytes(peer, piece.key, piece.offset, piece.total, bytes, std::move(lease));
}

}  // namespace pathways::dataplane
