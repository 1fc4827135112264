#include "csrc/dataplane/peer_link.h"

#include <algorithm>

namespace pathways::dataplane {

using transport::Frame;
using transport::Frames;

namespace {

// Beyond so many messages a peer is told at once how many were taken; below, by the next tick or answer.
constexpr uint64_t kMaxUntold = 32;
// libzmq may take messages for a moment after it has ended a connection for good.
constexpr int kDoubtedTicks = 4;

PeerLink::Time TimeNow() { return std::chrono::steady_clock::now(); }

}  // namespace

void PeerLink::Doubt() { doubted_ = kDoubtedTicks; }

Status PeerLink::Transmit(Link::Kept message) {
  if (std::string* head = message.frames[0].text()) wire::PatchSequence(*head, link_.next_sequence());
  for (size_t i = 1; i < message.frames.size(); ++i) unread_.Count(message.frames[i]);
  Frames frames = transport::ShareAll(message.frames);
  link_.Keep(std::move(message));
  Status sent = own_.socket->Send(route, std::move(frames));
  // libzmq has no room: what it lacks is sent again at the next tick.
  if (sent.code() == Code::kResourceExhausted) {
    answers_.OweAgain();
    return OkStatus();
  }
  // Nobody is at the other end just now: it is sent again when somebody is.
  return sent.code() == Code::kNotFound ? OkStatus() : sent;
}

Status PeerLink::SayHello(bool anew) const {
  const Link::Statement told = link_.Tell(anew);
  const uint8_t again = told.anew ? 1 : 0;
  const wire::PeerHello hello{own_.cluster, own_.machine, told.number, told.other, told.received, told.sent, again};
  return own_.socket->Send(route, Frame(wire::Encode(hello)));
}

bool PeerLink::Tick(bool awaited) {
  hung_up_on_ = false;
  const Answers::Owed owed = answers_.Take();
  if (owed.word) AnswerWord(owed.hello, owed.lost);
  if (owed.again) AnswerAgain();
  bool waits = doubted_ > 0;
  doubted_ = std::max(doubted_ - 1, 0);
  if (awaited || kept() > 0) {
    waits = true;
  } else if (link_.untold() > 0) {
    SaySeen(false);
  }
  return !waits || SayHello(false).code() != Code::kNotFound;
}

bool PeerLink::OnHello(const wire::PeerHello& hello, uint64_t fresh, Link::Dropped* dropped) {
  const Link::Statement said{hello.number, hello.other, hello.received, hello.sent, hello.anew != 0};
  const Link::Heard heard = link_.Hear(said, fresh, dropped);
  heard_ = TimeNow();
  AnswerWord(heard.unknown, heard.lost);
  if (heard.send_again) AnswerAgain();
  return heard.forgotten;
}

Status PeerLink::OnSeen(const wire::PeerSeen& seen, Link::Dropped* dropped) {
  heard_ = TimeNow();
  if (seen.number != link_.number()) return OkStatus();  // of a link that has started again since
  if (!link_.HasSent(seen.received)) return InvalidArgument("a peer has seen more messages than it was sent");
  link_.Seen(seen.received, dropped);
  full_ = false;
  if (seen.lost) AnswerAgain();
  return OkStatus();
}

PeerLink::Verdict PeerLink::Take(uint64_t sequence, size_t limit) {
  if (kept() >= limit) {
    heard_ = TimeNow();
    return std::exchange(full_, true) ? Verdict::kNotNow : Verdict::kFull;
  }
  const Link::Verdict verdict = link_.Take(sequence);
  if (verdict == Link::Verdict::kStranger) return Verdict::kStranger;
  heard_ = TimeNow();
  if (verdict == Link::Verdict::kGap && link_.AskForGap()) SaySeen(true);
  if (link_.untold() >= kMaxUntold) SaySeen(false);
  return verdict == Link::Verdict::kNew ? Verdict::kNew : Verdict::kNotNow;
}

void PeerLink::Replace(uint64_t key, const std::string& head, Link::Dropped* dropped) {
  uint64_t sequence = link_.first_kept();
  for (Link::Kept& message : link_.kept()) {
    if (message.key == key && message.frames.size() > 1) {
      std::string numbered = head;
      wire::PatchSequence(numbered, sequence);
      dropped->push_back(std::exchange(message.frames, {}));
      message.frames.emplace_back(std::move(numbered));
    }
    ++sequence;
  }
}

void PeerLink::SaySeen(bool lost) {
  link_.Told();
  const wire::PeerSeen seen{link_.theirs(), link_.received(), lost ? uint8_t{1} : uint8_t{0}};
  (void)own_.socket->Send(route, Frame(wire::Encode(seen)));
}

void PeerLink::AnswerWord(bool hello, bool lost) {
  if (!answers_.Word(hello, lost)) return;
  if (hello) (void)SayHello(false);
  SaySeen(lost);
}

void PeerLink::AnswerAgain() {
  if (!answers_.Again()) return;
  for (Link::Kept& message : link_.kept()) {
    const Status sent = own_.socket->Send(route, transport::ShareAll(message.frames));
    if (sent.ok()) continue;
    if (sent.code() == Code::kResourceExhausted) answers_.OweAgain();
    return;
  }
}

}  // namespace pathways::dataplane
