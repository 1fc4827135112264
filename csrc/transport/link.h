// Link: what a process remembers of the messages to and from one peer, so that they outlive the connection they went
// by. A connection that is cut takes messages along; both ends then say how far they got, and what is missing is sent
// again. To the users of a link each message arrives once, in order.
//
// Messages are numbered from 1 by their sender and kept until the peer has said that it took them. The numbers belong
// to the sender's link, which has a random number of its own: a peer that starts again has another one, and nothing
// that was meant for its predecessor counts.
//
// The links of data connections are used by dataplane::PeerLink, those of control connections by Line (line.h).
//
// A pure state machine: what is to be sent is told to the caller. Ownership: keeps shares of sent frames. Threads: none
// inside; its user's lock guards it.
#ifndef PTPATHWAYS_TRANSPORT_LINK_H_
#define PTPATHWAYS_TRANSPORT_LINK_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "csrc/transport/frame.h"

namespace pathways::transport {

class Link {
 public:
  // How far the sender of a PEER_HELLO is.
  struct Statement {
    uint64_t number = 0;    // of its link
    uint64_t other = 0;     // of the receiver's link, as it knows it; 0: not yet
    uint64_t received = 0;  // messages of `other` that it took
    uint64_t sent = 0;      // messages of `number` that it sent
    bool anew = false;      // by a new connection: what was under way on the one before is lost
  };
  // Frames whose last share may be dropped: to be destroyed without a lock.
  using Dropped = std::vector<Frames>;

  // `theirs`: of the peer's link, if it is known beforehand.
  explicit Link(uint64_t number, uint64_t theirs = 0) : number_(number), theirs_(theirs) {}

  uint64_t number() const { return number_; }
  bool knows_peer() const { return theirs_ != 0; }

  // --- out
  struct Kept {
    uint64_t ticket;  // of a piece, 0: of none
    uint64_t key;     // of its transfer
    Frames frames;
    size_t bytes = 0;  // filled in by Keep
  };
  uint64_t next_sequence() const { return seen_ + kept_.size() + 1; }
  // A message goes out under next_sequence().
  void Keep(Kept message);
  // Of all that is kept, as it was when it was handed over.
  size_t kept_bytes() const { return kept_bytes_; }
  // What the peer may not have, with the sequences from first_kept() on.
  std::deque<Kept>& kept() { return kept_; }
  const std::deque<Kept>& kept() const { return kept_; }
  uint64_t first_kept() const { return seen_ + 1; }
  // Whether the peer can have taken so many messages.
  bool HasSent(uint64_t count) const { return count < next_sequence(); }
  // The peer took so many messages.
  void Seen(uint64_t received, Dropped* dropped);
  // The peer answered this piece, hence took it and all before.
  void SeenTicket(uint64_t ticket, Dropped* dropped);

  // --- in
  enum class Verdict { kNew, kRepeat, kGap, kStranger };
  Verdict Take(uint64_t sequence);
  // Whether to tell the peer of the gap: once for each.
  // Whoever says more than that the peer is to send again calls it, too.
  bool AskForGap() { return std::exchange(asked_, received_) != received_; }
  uint64_t theirs() const { return theirs_; }
  uint64_t received() const { return received_; }
  // Messages taken of which the peer has not been told. Telling it sets this back.
  uint64_t untold() const { return received_ - told_; }
  void Told() { told_ = received_; }

  // --- both
  Statement Tell(bool anew) const { return {number_, theirs_, received_, seen_ + kept_.size(), anew}; }
  struct Heard {
    bool forgotten = false;  // the peer knows nothing of what it was sent: this link starts again, with nothing kept
    bool send_again = false;
    bool unknown = false;  // it must be told of this link
    bool lost = false;     // messages of it did not arrive
  };
  // `fresh`: a number for this link, should it have to start again.
  Heard Hear(const Statement& statement, uint64_t fresh, Dropped* dropped);

 private:
  uint64_t number_;
  uint64_t seen_ = 0;  // messages that the peer has for certain
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
  uint64_t theirs_ = 0;
  uint64_t received_ = 0;
  uint64_t told_ = 0;
  uint64_t asked_ = UINT64_MAX;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_LINK_H_
