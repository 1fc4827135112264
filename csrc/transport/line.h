// Line: one end of what a member (a client or worker) and the controller say to each other, over as many connections as
// that takes. A connection that is lost takes messages along; the member's next one begins with a HEARTBEAT that shows
// whose it is, both ends say how far they got, and what is missing is sent again. To those above, each message arrives
// once, in order.
//
// Numbered and kept (link.h) are all messages of a member and to it, but for HELLO and HEARTBEAT. What is kept has a
// bound: an end that exceeds it gives the other one up, and says so.
//
// Lifeline: how long the other end of a line is believed to be there.
//
// Both are pure state machines. Ownership: plain values; a Line keeps shares of sent frames. Threads: none inside;
// their user's lock guards them.
#ifndef PTPATHWAYS_TRANSPORT_LINE_H_
#define PTPATHWAYS_TRANSPORT_LINE_H_

#include <cstdint>
#include <string>

#include "csrc/base/status.h"
#include "csrc/transport/link.h"
#include "csrc/wire/message.h"

namespace pathways::transport {

struct LineLimits {
  size_t messages = 0;
  size_t bytes = 0;  // before the latest, which may have any size
};

class Line {
 public:
  // Both ends give the line the number that the member drew.
  explicit Line(uint64_t number, LineLimits limits) : limits_(limits), link_(number, number) {}

  uint64_t number() const { return link_.number(); }

  // --- out
  // Numbers and keeps a message whose head is a string; what is to be sent of it if there is a connection.
  Frames Out(Frames message);
  uint64_t sent() const { return link_.next_sequence() - 1; }
  // How many of them the other end is known to have taken.
  uint64_t taken() const { return link_.first_kept() - 1; }
  // OK unless more is kept than the limits allow.
  Status CheckRoom() const;
  // What the other end may not have, in order. `send`: takes Frames.
  template <typename Send>
  void Again(Send send) {
    for (Link::Kept& kept : link_.kept()) send(ShareAll(kept.frames));
  }
  // Nobody is at the other end any more: nothing is kept.
  void Forget() { link_ = Link(number(), number()); }
  // The other end has taken so many. INVALID_ARGUMENT when it was not sent as many.
  Status Seen(uint64_t received, Link::Dropped* dropped);

  // --- in
  // Of a numbered message of `bytes` bytes.
  Link::Verdict In(uint32_t number, size_t bytes);
  // Whether the other end must be told how far this one is, without waiting for the next HEARTBEAT.
  bool OwesWord() const;
  // How many were taken, which the other end is about to be told.
  uint64_t Tell();
  // Whether to ask the other end to send again: once for each gap.
  bool AskForGap() { return link_.AskForGap(); }

 private:
  const LineLimits limits_;
  Link link_;
  size_t latest_bytes_ = 0;  // of what was said last
  size_t untold_bytes_ = 0;
};

class Lifeline {
 public:
  // Within so long after a connection closed the other end must be back; a process that has ended cannot.
  static constexpr int64_t kGraceMs = 4000;
  // A connection that closes so long after the last word on it closes after silence. Less than it takes an end to give
  // up a silent connection, and more than a heartbeat's time.
  static constexpr int64_t kSilenceMs = 1500;
  static constexpr int64_t kCallAgainMs = 1000;
  // Whoever does not come to its ticks for so long was itself stopped, and blames nobody for the silence.
  static constexpr int64_t kStoppedMs = 2000;

  void Heard(int64_t now_ms) { heard_ms_ = now_ms; }
  void Opened() {
    down_ = false;
    closed_ms_ = 0;
  }
  // The connection ended, or an attempt to make it again. `gives_up_silence`: this end closes connections on which it
  // hears nothing, or the other one has said that it does; which is silence.
  void Closed(int64_t now_ms, bool gives_up_silence) {
    down_ = true;
    call_ms_ = now_ms + kCallAgainMs;
    const bool after_silence = gives_up_silence && now_ms > heard_ms_ + kSilenceMs;
    if (closed_ms_ == 0 && !after_silence) closed_ms_ = now_ms;
  }
  // Whether it is time to make the connection again. libzmq does so when one was cut, and has that long for it, but not
  // when it has read there what is no message.
  bool CallsAgain(int64_t now_ms) {
    if (!down_ || now_ms < call_ms_) return false;
    call_ms_ = now_ms + kCallAgainMs;
    return true;
  }
  // To be called regularly: why the other end is gone, empty while it may be there. `process_is_gone` is asked while
  // there is no connection; `lease_ms`: how long silence is borne, 0: this is somebody else's concern.
  template <typename Gone>
  std::string Tick(int64_t now_ms, int64_t lease_ms, Gone process_is_gone) {
    const bool was_stopped = ticked_ms_ != 0 && now_ms > ticked_ms_ + kStoppedMs;
    ticked_ms_ = now_ms;
    if (was_stopped) {
      heard_ms_ = now_ms;
      if (closed_ms_ != 0) closed_ms_ = now_ms;
    }
    if (down_ && process_is_gone()) {
      if (closed_ms_ == 0 || now_ms <= closed_ms_ + kGraceMs / 2) {
        return "its connection closed (the process ended or was killed)";
      }
      // So long after it closed, that is what ended the process: it gave this end up a little earlier.
      return "its connection closed and was not made again within " + std::to_string((now_ms - closed_ms_) / 1000) +
             " s (and then the process ended or was killed)";
    }
    if (closed_ms_ != 0 && now_ms > closed_ms_ + kGraceMs) {
      return "its connection closed and was not made again within " + std::to_string(kGraceMs / 1000) +
             " s (the process ended or was killed, or the network refuses it)";
    }
    if (lease_ms > 0 && now_ms > heard_ms_ + lease_ms) {
      return "nothing was heard of it for " + std::to_string(now_ms - heard_ms_) + " ms";
    }
    return "";
  }

 private:
  int64_t heard_ms_ = 0;
  bool down_ = false;      // there is no connection
  int64_t closed_ms_ = 0;  // when it closed; 0: it is there, or silence is what counts
  int64_t call_ms_ = 0;    // when to call again, while there is no connection
  int64_t ticked_ms_ = 0;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_LINE_H_
