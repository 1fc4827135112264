// FetchRound: so many FETCHes of one client are on their way to one host at most, as a host takes the messages of all
// clients in the order of their arrival: one that asks for thousands of values must not delay the others by its queue.
//
// A FETCH counts until the host has taken it, which its heartbeats tell by the number of messages that it has had. It
// is counted in halves, so that a host that keeps up is never waited for.
//
// A pure state machine. Ownership: plain value. Threads: none inside; its user's lock guards it.
#ifndef PTPATHWAYS_CONTROLLER_FETCH_ROUND_H_
#define PTPATHWAYS_CONTROLLER_FETCH_ROUND_H_

#include <cstdint>
#include <utility>

namespace pathways::controller {

class FetchRound {
 public:
  static constexpr uint32_t kHalf = 512;
  static constexpr uint32_t kMost = 2 * kHalf;

  // Whether one more may go. `sent`: messages that the host was sent so far; `taken`: how many of them it has had.
  bool Pass(uint64_t sent, uint64_t taken) {
    if (std::exchange(sent_, sent) != sent) unsent_ = 0;
    if (passed_ == kMost) {
      if (taken < first_half_) return false;
      passed_ = kHalf;
    }
    if (passed_ == kHalf) first_half_ = sent + unsent_;
    ++passed_;
    ++unsent_;
    return true;
  }

 private:
  uint32_t passed_ = 0;
  uint64_t first_half_ = 0;  // messages that the host will have had when it has taken the first kHalf
  uint64_t sent_ = 0;        // as it was told last
  uint64_t unsent_ = 0;      // that have passed since it changed: several may pass before the first is sent
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_FETCH_ROUND_H_
