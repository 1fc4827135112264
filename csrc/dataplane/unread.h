// Unread: what was sent to one peer and is still in memory here, because the peer has not taken it.
//
// A peer that follows the protocol never meets these limits, however long it is stopped: while it does not read it has
// 32 pieces of at most 4 MiB on the way to it (transport/bulk.h), 8 chunks of 128 KiB for each pair of devices in a
// collective, and answers to what it sent, which is no more than its own window holds and 65,536 deferred transfers.
// What is beyond that takes nothing from a peer that reads later:
//
//   messages   nothing numbered of the peer is taken any more, so nothing more is answered; the link asks for it again
//   failures   of transfers to it are told through the controller
//   bytes      its connection is closed, which frees what libzmq holds, and made anew; the link sends again what counts
//   transfers  to a client: the next one fails, by name
//
// Ownership: plain value; its counter is shared with the frames that it counts. Threads: frames may be let go of on any
// thread; all else is under its user's lock.
#ifndef PTPATHWAYS_DATAPLANE_UNREAD_H_
#define PTPATHWAYS_DATAPLANE_UNREAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "csrc/transport/frame.h"

namespace pathways::dataplane {

struct PeerLimits {
  size_t messages = size_t{1} << 17;
  size_t failures = size_t{1} << 15;  // messages that wait for a peer which is then told of failures by another way
  uint64_t client_bytes = uint64_t{256} << 20;
  uint64_t host_bytes = uint64_t{1} << 30;  // collectives come on top
  size_t transfers = size_t{1} << 18;

  uint64_t bytes(const std::string& peer) const { return peer.starts_with("c/") ? client_bytes : host_bytes; }
};

class Unread {
 public:
  // Counts the frame's bytes until neither the caller, nor libzmq, nor anyone else holds them.
  void Count(transport::Frame& frame);
  uint64_t bytes() const { return bytes_->load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<uint64_t>> bytes_ = std::make_shared<std::atomic<uint64_t>>(0);
};

// What a peer is told, and sent again, because it asks: so often between two ticks, and then once more with the next
// one. Threads: none inside; its user's lock guards it.
class Answers {
 public:
  static constexpr int kWords = 8, kAgain = 2;
  struct Owed {
    bool word = false, hello = false, lost = false, again = false;
  };

  // Whether to say it now; otherwise it is owed. `hello`: with this end's own; `lost`: messages are missing.
  bool Word(bool hello, bool lost) {
    if (words_ < kWords) return ++words_, true;
    owed_.word = true;
    owed_.hello |= hello;
    owed_.lost |= lost;
    return false;
  }
  // The same of what is kept for it.
  bool Again() {
    if (again_ < kAgain) return ++again_, true;
    OweAgain();
    return false;
  }
  void OweAgain() { owed_.again = true; }
  // At a tick: what has been put off since the last one.
  Owed Take() {
    words_ = again_ = 0;
    return std::exchange(owed_, {});
  }

 private:
  int words_ = 0, again_ = 0;
  Owed owed_;
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_UNREAD_H_
