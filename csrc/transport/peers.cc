#include "csrc/transport/peers.h"

#include <algorithm>
#include <utility>

#include "csrc/transport/zmq_api.h"

namespace pathways::transport {

void Peers::Learn(std::string_view identity, int fd) {
  if (fd < 0) {  // inproc: its ends are not reported
    fd_of_[std::string(identity)] = fd;
    return;
  }
  if (!open_.contains(fd)) {  // it came and went before its message was read
    pending_.push_back({PeerEventKind::kDisconnected, std::string(identity), "", fd});
    return;
  }
  // Two first messages from one descriptor: the sender of the earlier one came and went, and libzmq serves the older
  // connection first.
  if (auto earlier = identity_of_.find(fd); earlier != identity_of_.end()) {
    fd_of_.erase(earlier->second);
    pending_.push_back({PeerEventKind::kDisconnected, std::move(earlier->second), "", fd});
  }
  fd_of_[std::string(identity)] = fd;
  identity_of_[fd] = std::string(identity);
  callers_.Spoke(fd);
}

void Peers::Add(int event, int value, std::string_view endpoint) {
  if (event == zmq::kEventClosed) {
    // Of a listener: its connections went with it, of which libzmq tells nothing. Those of the next one come later.
    std::vector<int> ended;
    for (const auto& [fd, listener] : accepted_at_) {
      if (listener == endpoint) ended.push_back(fd);
    }
    for (const int fd : ended) Add(zmq::kEventDisconnected, fd, endpoint);
    return;
  }
  PeerEvent out{PeerEventKind::kHandshakeFailed, "", std::string(endpoint), value};
  out.hung_up = event == zmq::kEventHandshakeFailedNoDetail;
  if (event == zmq::kEventAccepted || event == zmq::kEventConnected) {
    open_.insert(value);
    ++unproven_;
    if (event == zmq::kEventAccepted) {
      callers_.Accepted(value, endpoint.starts_with("tcp://"));
      accepted_at_[value] = std::string(endpoint);
    } else {
      accepted_at_.erase(value);
    }
    return;  // of interest to users once the handshake is done, an event that has no descriptor
  }
  if (event == zmq::kEventHandshakeSucceeded) {
    out.kind = PeerEventKind::kConnected;
    unproven_ = std::max(unproven_ - 1, 0);
  }
  if (event == zmq::kEventDisconnected) {
    if (!refused_ && unproven_ > 0 && !identity_of_.contains(value)) refused_ = out;
    out.kind = PeerEventKind::kDisconnected;
    open_.erase(value);
    accepted_at_.erase(value);
    std::string caller = callers_.Ended(value);
    if (refused_ && !identity_of_.contains(value)) {
      if (!caller.empty()) refused_->address = std::move(caller);
      pending_.push_back(*std::move(refused_));
      refused_.reset();
      unproven_ = std::max(unproven_ - 1, 0);
    }
    if (auto at = identity_of_.find(value); at != identity_of_.end()) {
      out.identity = std::move(at->second);
      identity_of_.erase(at);
      // With hand-over a newer connection may speak for this routing id by now.
      if (auto known = fd_of_.find(out.identity); known != fd_of_.end() && known->second == value) fd_of_.erase(known);
    }
  }
  if (out.kind == PeerEventKind::kHandshakeFailed) {
    if (refused_) pending_.push_back(*std::move(refused_));
    refused_ = std::move(out);
    return;
  }
  pending_.push_back(std::move(out));
}

void Peers::DropStrangers(std::chrono::milliseconds grace,
                          const std::function<bool(std::string_view identity)>& is_known) {
  callers_.DropStrangers(std::chrono::steady_clock::now(), grace, [&](int fd) {
    const auto identity = identity_of_.find(fd);
    return identity != identity_of_.end() && is_known(identity->second);
  });
}

void Peers::HangUp(std::string_view identity) {
  if (const auto at = fd_of_.find(identity); at != fd_of_.end()) callers_.HangUp(at->second);
}

void Peers::TakeEvents(std::vector<PeerEvent>* events) {
  for (PeerEvent& event : pending_) events->push_back(std::move(event));
  pending_.clear();
}

}  // namespace pathways::transport
