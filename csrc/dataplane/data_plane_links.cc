// DataPlane: connections, and what is said on them beside the messages of links.
#include <cstdio>

#include "csrc/base/clock.h"
#include "csrc/base/sha256.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/transport/keys.h"

namespace pathways::dataplane {

using transport::Frame;

namespace {

// libzmq closes a listener within milliseconds.
constexpr std::chrono::milliseconds kRebindPatience{200};
constexpr size_t kRouteBytes = 16;
// A caller must have said who it is by then.
constexpr std::chrono::seconds kHelloDeadline{10};

}  // namespace

void DataPlane::Rotate(transport::CurveOptions curve) {
  if (!options_.curve.enabled()) return;
  reactor_->Post([this, curve = std::move(curve)] {
    (void)socket_->SetCurve(curve);  // which fails for a closed socket only
    listens_again_ = !endpoint_.empty() && !transport::IsPrivate(endpoint_) && !ListenAgain();
    std::lock_guard lock(mutex_);
    for (auto& [name, peer] : peers_) {
      // Until the other end has changed its keys, libzmq tries again.
      if (!peer.endpoint.empty() && !transport::IsPrivate(peer.endpoint)) CallAgain(name, peer);
    }
  });
}

bool DataPlane::ListenAgain() {
  const Status bound = socket_->Rebind(endpoint_, kRebindPatience);
  if (!bound.ok()) std::fprintf(stderr, "ptpathways: %s; it is tried again\n", bound.ToString().c_str());
  return bound.ok();
}

Status DataPlane::SayHello(const Peer& peer, bool anew) {
  const Link::Statement told = peer.link.Tell(anew);
  wire::PeerHello hello{membership_.cluster,
                        options_.machine,
                        told.number,
                        told.other,
                        told.received,
                        told.sent,
                        told.anew ? uint8_t{1} : uint8_t{0}};
  return socket_->Send(peer.route, Frame(wire::Encode(hello)));  // without a connection it is said when there is one
}

std::string DataPlane::NewRoute() {
  // A caller that knew the route could take the connection over.
  return "to/" + std::to_string(next_route_++) + "/" + Hex(RandomBytes(kRouteBytes));
}

void DataPlane::CallAgain(const std::string& name, Peer& peer) {
  std::string route = NewRoute();            // the former one may not be free yet
  (void)socket_->Disconnect(peer.endpoint);  // of which nothing but its name may be left
  if (!socket_->ConnectAs(peer.endpoint, route, peer.identity).ok()) return;  // at the next tick
  names_.erase(peer.route);
  names_[route] = name;
  peer.route = std::move(route);
}

void DataPlane::SaySeen(Peer& peer, bool lost) {
  peer.link.Told();
  const wire::PeerSeen seen{peer.link.theirs(), peer.link.received(), lost ? uint8_t{1} : uint8_t{0}};
  (void)socket_->Send(peer.route, Frame(wire::Encode(seen)));
}

void DataPlane::SendAgain(Peer& peer) {
  for (Link::Kept& message : peer.link.kept()) {
    const Status sent = socket_->Send(peer.route, transport::ShareAll(message.frames));
    if (sent.ok()) continue;
    if (sent.code() == Code::kResourceExhausted) peer.answers.OweAgain();
    return;
  }
}

void DataPlane::AnswerWord(Peer& peer, bool hello, bool lost) {
  if (!peer.answers.Word(hello, lost)) return;
  if (hello) (void)SayHello(peer, false);
  SaySeen(peer, lost);
}

void DataPlane::AnswerAgain(Peer& peer) {
  if (peer.answers.Again()) SendAgain(peer);
}

void DataPlane::HangUp(const std::string& name) {
  std::string route;
  uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    const auto at = peers_.find(name);
    if (at == peers_.end()) return;
    bytes = at->second.unread.bytes();
    if (at->second.endpoint.empty()) {
      route = at->second.route;
    } else {
      CallAgain(name, at->second);
    }
  }
  const std::string text = "closed the data connection to " + Printable(name, 64) + ", which has not read " +
                           std::to_string(bytes >> 20) + " MiB that are in memory for it; it is made anew";
  if (const auto line = log_.Take(name, text, static_cast<uint64_t>(NowMs()))) {
    std::fprintf(stderr, "ptpathways: %s\n", line->c_str());
  }
  if (!route.empty()) socket_->HangUp(route);
}

void DataPlane::DropStrangers() {
  socket_->DropStrangers(kHelloDeadline, [this](std::string_view route) {
    std::lock_guard lock(mutex_);
    return !sender_ || names_.contains(std::string(route));
  });
}

}  // namespace pathways::dataplane
