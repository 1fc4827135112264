// TransferBook: the transfers to one peer, and what becomes of each.
//
// A transfer is open from the moment its bytes are there to be sent. It ends once, in one of three ways: done (the peer
// has let go of every byte), failed (the peer refused it, is lost, or was silent for too long) or cancelled (by this
// process). A peer that says something is not silent, even when it takes no bytes: it may have to wait for a device
// before it can.
//
// A pure state machine. Ownership: plain value. Threads: none inside; its user's lock guards it.
#ifndef PTPATHWAYS_DATAPLANE_TRANSFER_BOOK_H_
#define PTPATHWAYS_DATAPLANE_TRANSFER_BOOK_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::dataplane {

enum class TransferState { kOpen, kDone, kFailed, kCancelled };

class TransferBook {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Stalled {
    uint64_t key;
    Status status;
  };

  void Begin(uint64_t key, uint64_t bytes, Time now);
  // The peer has let go of so many more bytes of it.
  void Progress(uint64_t key, uint64_t bytes);
  // `state`: how it ended. False when it was not open.
  bool End(uint64_t key, TransferState state);
  void EndAll(TransferState state);
  // Ends as failed what waits for a peer that was silent for `limit`; `peer`: its name, for the error; `heard`: when
  // something of it arrived.
  std::vector<Stalled> TakeStalled(const std::string& peer, Time heard, std::chrono::milliseconds limit, Time now);

  bool empty() const { return open_.empty(); }
  // How many transfers are in this state, or ended so.
  uint64_t count(TransferState state) const {
    return state == TransferState::kOpen ? open_.size() : ended_[static_cast<size_t>(state)];
  }

 private:
  struct Transfer {
    uint64_t bytes;
    uint64_t seen;
    Time begun;
  };
  std::unordered_map<uint64_t, Transfer> open_;
  std::array<uint64_t, 4> ended_{};
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_TRANSFER_BOOK_H_
