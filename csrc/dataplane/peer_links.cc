#include "csrc/dataplane/peer_links.h"

#include <algorithm>
#include <unordered_set>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/transport/curve.h"

namespace pathways::dataplane {
namespace {

bool IsNumbered(wire::Type type) {
  return type == wire::Type::kData || type == wire::Type::kRelease || type == wire::Type::kResume ||
         type == wire::Type::kCollectiveChunk || type == wire::Type::kCollectiveTaken;
}

}  // namespace

void PeerLinks::Join(Membership membership) {
  std::lock_guard lock(mutex);
  own_.cluster = membership.cluster;
  membership_ = std::move(membership);
}

void PeerLinks::SetIdentityAt(const std::string& host, std::string identity) {
  std::lock_guard lock(mutex);
  names_.SetIdentityAt(host, std::move(identity));
}

Status PeerLinks::ConnectTo(const std::string& host, const std::string& endpoint, const std::string& machine,
                            uint64_t session) {
  const std::string name = PeerNames::OfHost(host);
  std::lock_guard lock(mutex);
  if (stopped_) return Unavailable("the data plane has stopped");
  if (peers_.contains(name)) return OkStatus();
  std::string identity = membership_.identity;
  if (membership_.session != 0) {
    PW_ASSIGN_OR_RETURN(identity, names_.IdentityAt(host));
  }
  names_.Return(name);
  const std::string route = names_.NewRoute();
  PW_RETURN_IF_ERROR(own_.socket->ConnectAs(endpoint, route, identity));
  PeerLink& peer = Add(name);
  peer.identity = std::move(identity);
  peer.route = route;
  peer.session = session;
  names_.Add(route, name);
  peer.same_machine = !machine.empty() && machine == options_.machine;
  peer.endpoint = endpoint;
  (void)peer.SayHello(false);
  return OkStatus();
}

void PeerLinks::CallAllAgain() {
  std::lock_guard lock(mutex);
  for (auto& [name, peer] : peers_) {
    // Until the other end has changed its keys, libzmq tries again.
    if (peer.called() && !transport::IsPrivate(peer.endpoint)) CallAgain(name, peer);
  }
}

Status PeerLinks::Transmit(std::string_view name, Link::Kept message) {
  std::lock_guard lock(mutex);
  const auto at = peers_.find(name);
  if (at == peers_.end()) {
    const Status gone = Gone(name);
    return gone.ok() ? NotFound("no peer '" + Printable(name) + "' has called this process") : gone;
  }
  const Status sent = at->second.Transmit(std::move(message));
  if (at->second.HoldsTooMuch(options_.limits.bytes(at->first))) options_.hang_up(at->first);
  return sent;
}

bool PeerLinks::Lose(const std::string& name, const Status& reason, uint64_t session) {
  ByName<PeerLink>::node_type lost;  // destroyed without the lock, as kept frames are
  {
    std::lock_guard lock(mutex);
    if (session != 0) {
      names_.EndSession(name, session);
      if (const PeerLink* const peer = Find(name); peer != nullptr && peer->session > session) return false;
    }
    lost = peers_.extract(name);
    names_.Leave(name, reason, lost.empty() ? 0 : lost.mapped().theirs());
    if (!lost.empty()) names_.Remove(lost.mapped().route);
  }
  // libzmq would knock at a dead host's door for ever; an endpoint that is gone already is no matter.
  if (!lost.empty() && lost.mapped().called()) (void)own_.socket->Disconnect(lost.mapped().endpoint);
  return true;
}

uint64_t PeerLinks::unread_bytes(std::string_view name) const {
  std::lock_guard lock(mutex);
  const auto at = peers_.find(name);
  return at == peers_.end() ? 0 : at->second.unread_bytes();
}

void PeerLinks::Stop() {
  std::lock_guard lock(mutex);
  stopped_ = true;
}

void PeerLinks::Clear() {
  ByName<PeerLink> peers;
  std::lock_guard lock(mutex);
  peers.swap(peers_);
}

Result<std::optional<PeerLinks::Greeting>> PeerLinks::OnHello(std::string_view route, const wire::PeerHello& hello,
                                                              const transport::Frame& frame) {
  if (hello.cluster != membership_.cluster) {
    return FailedPrecondition("expected a peer of cluster " + membership_.cluster + ", got one of another");
  }
  if (hello.number == 0) return InvalidArgument("a link's number must not be 0");
  bool called = false;
  {
    std::lock_guard lock(mutex);
    const Entry* const known = AtRoute(route);
    called = known != nullptr && known->second.called();  // then the listener's key has been checked
  }
  wire::Identity caller;
  if (!called) {
    PW_ASSIGN_OR_RETURN(caller, CallerOf(membership_, route, frame));
  }
  Link::Dropped dropped;
  Greeting greeting;
  std::lock_guard lock(mutex);
  if (!called) {
    if (!names_.Return(caller.name, hello.number)) return std::optional<Greeting>();
    PW_RETURN_IF_ERROR(names_.Enter(caller));
    greeting.peer = caller.name;
    PeerLink& peer = Add(greeting.peer);
    greeting.fresh = peer.route != route;
    if (greeting.fresh) names_.Remove(peer.route);
    peer.route = std::string(route);
    peer.session = caller.session;
    peer.same_machine = !hello.machine.empty() && hello.machine == options_.machine;
    names_.Add(peer.route, greeting.peer);
  }
  Entry* const entry = AtRoute(route);
  if (entry == nullptr) return std::optional<Greeting>();  // it was lost just now
  auto& [name, peer] = *entry;
  greeting.peer = name;
  greeting.session = peer.session;
  greeting.same_machine = peer.same_machine;
  greeting.forgotten = peer.OnHello(hello, numbers_() | 1, &dropped);
  return std::optional<Greeting>(std::move(greeting));
}

Status PeerLinks::OnSeen(std::string_view route, const wire::PeerSeen& seen) {
  Link::Dropped dropped;
  std::lock_guard lock(mutex);
  PW_ASSIGN_OR_RETURN(Entry* const entry, SenderBy(route, wire::Type::kPeerSeen));
  return entry == nullptr ? OkStatus() : entry->second.OnSeen(seen, &dropped);
}

Result<std::optional<PeerLinks::Sender>> PeerLinks::Take(std::string_view route, const wire::Header& header) {
  std::lock_guard lock(mutex);
  PW_ASSIGN_OR_RETURN(Entry* const entry, SenderBy(route, header.type));
  if (entry == nullptr) return std::optional<Sender>();
  if (!IsNumbered(header.type)) {
    return InvalidArgument("a data connection does not carry " + std::string(wire::TypeName(header.type)));
  }
  auto& [name, peer] = *entry;
  const PeerLink::Verdict verdict = peer.Take(header.sequence, options_.limits.messages);
  if (verdict == PeerLink::Verdict::kStranger) return FailedPrecondition("expected PEER_HELLO first");
  if (verdict == PeerLink::Verdict::kFull) {
    Refused(name, ResourceExhausted("expected it to take what it is sent here, of which at most " +
                                    std::to_string(options_.limits.messages) +
                                    " messages are kept for it; nothing more of it is taken until it reads"));
  }
  if (verdict != PeerLink::Verdict::kNew) return std::optional<Sender>();
  return std::optional<Sender>({name, peer.session});
}

void PeerLinks::OnConnection(const transport::PeerEvent& event) {
  std::lock_guard lock(mutex);
  if (event.kind == transport::PeerEventKind::kDisconnected) {
    // Whose connection it was is not said, so those who were called are asked whether they are still there.
    for (auto& [name, peer] : peers_) {
      if (peer.called()) peer.Doubt();
    }
  }
  if (event.kind != transport::PeerEventKind::kConnected) return;
  // A connection of ours is there, perhaps again. Its endpoint may be reported by another name than it was given.
  if (!options_.listens_at.empty() && event.endpoint == options_.listens_at) return;
  const bool named = std::any_of(peers_.begin(), peers_.end(),
                                 [&](const auto& item) { return item.second.endpoint == event.endpoint; });
  for (auto& [name, peer] : peers_) {
    if (peer.called() && (!named || peer.endpoint == event.endpoint)) (void)peer.SayHello(true);
  }
}

void PeerLinks::OnTick(const std::vector<std::pair<std::string, uint64_t>>& open) {
  std::unordered_set<std::string_view> awaited;
  for (const auto& [name, transfers] : open) awaited.insert(name);
  std::lock_guard lock(mutex);
  for (auto& [name, peer] : peers_) {
    // libzmq makes a connection again that was cut, but not one on which it has read what is no message.
    if (!peer.Tick(awaited.contains(name)) && peer.called()) CallAgain(name, peer);
  }
}

void PeerLinks::HangUp(const std::string& name) {
  std::string route;
  uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex);
    PeerLink* const peer = Find(name);
    if (peer == nullptr) return;
    bytes = peer->unread_bytes();
    if (peer->called()) {
      CallAgain(name, *peer);
    } else {
      route = peer->route;
    }
  }
  Log(name, "closed the data connection to " + Printable(name, 64) + ", which has not read " +
                std::to_string(bytes >> 20) + " MiB that are in memory for it; it is made anew");
  if (!route.empty()) own_.socket->HangUp(route);
}

bool PeerLinks::Knows(std::string_view route) const {
  std::lock_guard lock(mutex);
  return names_.Find(route) != nullptr;
}

void PeerLinks::Refused(std::string_view peer, const Status& status) {
  Log(peer, "refused a data message from " + Printable(peer, 64) + ": " + status.ToString());
}

void PeerLinks::Log(std::string_view peer, const std::string& text) {
  const auto line = log_.Take(peer, text, static_cast<uint64_t>(NowMs()));
  if (line) logging::Warning("", *line);
}

Status PeerLinks::Gone(std::string_view name) const {
  return stopped_ ? Cancelled("the data plane has stopped") : names_.Gone(name);
}

PeerLink* PeerLinks::Find(std::string_view name) {
  const auto at = peers_.find(name);
  return at == peers_.end() ? nullptr : &at->second;
}

PeerLinks::Entry* PeerLinks::AtRoute(std::string_view route) {
  const std::string* const name = names_.Find(route);
  const auto at = name == nullptr ? peers_.end() : peers_.find(*name);
  return at == peers_.end() ? nullptr : &*at;
}

Result<PeerLinks::Entry*> PeerLinks::SenderBy(std::string_view route, wire::Type type) {
  Entry* const entry = AtRoute(route);
  if (entry != nullptr || PeerNames::IsOurs(route)) return entry;
  return Status(Code::kPermissionDenied, "expected PEER_HELLO as the first message of a data connection, got " +
                                             std::string(wire::TypeName(type)));
}

void PeerLinks::CallAgain(const std::string& name, PeerLink& peer) {
  std::string route = names_.NewRoute();         // the former one may not be free yet
  (void)own_.socket->Disconnect(peer.endpoint);  // of which nothing but its name may be left
  if (!own_.socket->ConnectAs(peer.endpoint, route, peer.identity).ok()) return;  // at the next tick
  names_.Remove(peer.route);
  names_.Add(route, name);
  peer.route = std::move(route);
}

}  // namespace pathways::dataplane
