// Peers: which of a socket's connections speaks for which routing id, and what its users are told of connections.
//
// libzmq reports a lost connection by its file descriptor only, so each peer's first message tells which one is its.
// Descriptors are used again at once, and the monitor is a queue apart from the messages; but libzmq reports a
// connection's start before its first message is read, and its end before the descriptor is closed. Hence, when all
// that the monitor has is added before a first message is looked at, what is known of open connections is up to date.
//
// Ownership: owned by a Socket. Threads: the socket's receiving thread only.
#ifndef PTPATHWAYS_TRANSPORT_PEERS_H_
#define PTPATHWAYS_TRANSPORT_PEERS_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "csrc/transport/callers.h"

namespace pathways::transport {

enum class PeerEventKind {
  kConnected,        // transport and handshake are up
  kDisconnected,     // the peer closed, died, or missed its heartbeats; a Send just after may still return OK, in vain
  kHandshakeFailed,  // wrong keys, or not one of us
};

struct PeerEvent {
  PeerEventKind kind;
  // ROUTER: the routing id, if the peer has sent at least one message; empty otherwise and on a DEALER.
  std::string identity;
  std::string endpoint;  // as libzmq reports it
  int detail = 0;        // file descriptor or error number, for logs
  // kHandshakeFailed on a listener: the caller's IP address, if it could still be asked for.
  std::string address{};
  bool hung_up = false;  // kHandshakeFailed: the other end closed the connection, and said nothing wrong before
};

class Peers {
 public:
  explicit Peers(StrangerLimits limits) : callers_(limits) {}

  // An event of the monitor, in order. `value`: a descriptor, or an error's number.
  void Add(int event, int value, std::string_view endpoint);
  // To be called when all events were added.
  void Enforce() { callers_.Enforce(); }
  bool Knows(std::string_view identity) const { return fd_of_.find(identity) != fd_of_.end(); }
  // A peer's first message came by `fd`; all events were added.
  void Learn(std::string_view identity, int fd);
  // As Socket::DropStrangers.
  void DropStrangers(std::chrono::milliseconds grace, const std::function<bool(std::string_view identity)>& is_known);
  // As Socket::HangUp.
  void HangUp(std::string_view identity);

  // What users are to be told, in order.
  bool HasEvents() const { return !pending_.empty(); }
  void TakeEvents(std::vector<PeerEvent>* events);

 private:
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::unordered_map<std::string, int, StringHash, std::equal_to<>> fd_of_;
  std::unordered_map<int, std::string> identity_of_;
  std::unordered_set<int> open_;
  std::unordered_map<int, std::string> accepted_at_;  // the listener's endpoint
  Callers callers_;
  // libzmq tells of a failed handshake without saying whose; the end of that connection follows.
  std::optional<PeerEvent> refused_;
  // Connections whose handshake has not succeeded. Nobody asks libzmq to tell of protocol errors, in handshakes or
  // later: telling changes errno, and then it takes the error for "try again", stops to read and keeps the connection.
  // So one that ends unproven, and about which nothing was said, has failed in that way.
  int unproven_ = 0;
  std::vector<PeerEvent> pending_;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_PEERS_H_
