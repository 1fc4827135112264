// PeerLink: what is said to one peer on data connections, whichever connection there is just now.
//
// Numbered messages are kept until the peer has taken them (link.h). Beside them both ends say who they are and how far
// they got: PEER_HELLO on a new connection and to a silent peer, PEER_SEEN for what was taken. What is kept for a peer
// that does not read has limits, and so have answers to what it asks for (unread.h).
//
// Ownership: a value; borrows this end. Threads: none inside; its user's lock guards it, and is held while it sends, so
// that messages leave in the order of their numbers.
#ifndef PTPATHWAYS_DATAPLANE_PEER_LINK_H_
#define PTPATHWAYS_DATAPLANE_PEER_LINK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/dataplane/unread.h"
#include "csrc/transport/link.h"
#include "csrc/transport/socket.h"
#include "csrc/wire/bodies.h"

namespace pathways::dataplane {

using transport::Link;

// This process, as it says hello. Constant once it has joined.
struct OwnEnd {
  std::shared_ptr<transport::Socket> socket;
  std::string machine;  // transport::MachineToken()
  std::string cluster;
};

class PeerLink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `number`: of the link.
  PeerLink(const OwnEnd& own, uint64_t number) : own_(own), link_(number) {}

  // --- Its connection, for those who know of connections.
  bool called() const { return !endpoint.empty(); }
  std::string endpoint;  // where we connected; empty for a caller
  std::string route;     // what the socket calls it
  std::string identity;  // what we call ourselves there, if we connected
  uint64_t session = 0;  // owner of the segments that it may name
  bool same_machine = false;
  // A connection has ended, perhaps its own: for some ticks it is asked whether it is there.
  void Doubt();

  // Sends a message that arrives once, as long as neither end is lost.
  Status Transmit(Link::Kept message);
  // Once between two ticks: more than `limit` bytes are in memory for it.
  bool HoldsTooMuch(uint64_t limit) { return unread_.bytes() > limit && !std::exchange(hung_up_on_, true); }
  // `anew`: by a new connection. Without a connection it is said when there is one, and the error is NOT_FOUND.
  Status SayHello(bool anew) const;
  // Says what is owed, and to a silent peer of which something is expected how far we are. `awaited`: it has transfers
  // to take. False: there is no connection to it and none in the making.
  bool Tick(bool awaited);

  // --- What it said. `dropped`: to be destroyed without the lock.
  // `fresh`: a number for this link, should it have to start again. True: it knows nothing of what it was sent.
  bool OnHello(const wire::PeerHello& hello, uint64_t fresh, Link::Dropped* dropped);
  Status OnSeen(const wire::PeerSeen& seen, Link::Dropped* dropped);
  // A numbered message came. kFull: it has not taken `limit` messages, so until it does nothing of it is taken, and
  // comes again then; told once, afterwards it is kNotNow. kNotNow: it came before, or another one is missing.
  enum class Verdict { kNew, kNotNow, kFull, kStranger };
  Verdict Take(uint64_t sequence, size_t limit);
  // It has answered this piece.
  void SeenTicket(uint64_t ticket, Link::Dropped* dropped) { link_.SeenTicket(ticket, dropped); }
  // What is kept of transfer `key` with bytes becomes a message of this head alone.
  void Replace(uint64_t key, const std::string& head, Link::Dropped* dropped);

  uint64_t theirs() const { return link_.theirs(); }
  size_t kept() const { return link_.kept().size(); }  // messages that it may not have
  Time heard() const { return heard_; }                // when something of it arrived
  uint64_t unread_bytes() const { return unread_.bytes(); }

 private:
  void SaySeen(bool lost);
  // What was asked for, now or with the next tick. `hello`: it does not know this end's link.
  void AnswerWord(bool hello, bool lost);
  void AnswerAgain();

  const OwnEnd& own_;
  Link link_;
  Unread unread_;
  Answers answers_;
  Time heard_{};
  int doubted_ = 0;          // ticks
  bool full_ = false;        // nothing numbered of it is taken, and that was told
  bool hung_up_on_ = false;  // since the last tick
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_PEER_LINK_H_
