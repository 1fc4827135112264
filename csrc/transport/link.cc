#include "csrc/transport/link.h"

namespace pathways::transport {

void Link::Keep(Kept message) {
  for (const Frame& frame : message.frames) message.bytes += frame.size();
  kept_bytes_ += message.bytes;
  kept_.push_back(std::move(message));
}

void Link::Seen(uint64_t received, Dropped* dropped) {
  while (!kept_.empty() && seen_ < received) {
    kept_bytes_ -= kept_.front().bytes;
    dropped->push_back(std::move(kept_.front().frames));
    kept_.pop_front();
    ++seen_;
  }
}

void Link::SeenTicket(uint64_t ticket, Dropped* dropped) {
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (kept_[i].ticket == ticket) return Seen(seen_ + i + 1, dropped);
  }
}

Link::Verdict Link::Take(uint64_t sequence) {
  if (theirs_ == 0) return Verdict::kStranger;
  if (sequence <= received_) return Verdict::kRepeat;
  if (sequence != received_ + 1) return Verdict::kGap;
  ++received_;
  return Verdict::kNew;
}

Link::Heard Link::Hear(const Statement& statement, uint64_t fresh, Dropped* dropped) {
  Heard heard;
  if (statement.number != theirs_) {
    theirs_ = statement.number;
    received_ = told_ = 0;
    asked_ = UINT64_MAX;
  }
  if (statement.other == number_) {
    Seen(statement.received, dropped);
    heard.send_again = statement.anew && !kept_.empty();
  } else {
    heard.unknown = true;
    if (seen_ > 0) {
      heard.forgotten = true;
      for (Kept& message : kept_) dropped->push_back(std::move(message.frames));
      kept_.clear();
      kept_bytes_ = 0;
      seen_ = 0;
      number_ = fresh;
    }
  }
  heard.lost = received_ < statement.sent;
  return heard;
}

}  // namespace pathways::transport
