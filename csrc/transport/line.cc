#include "csrc/transport/line.h"

#include <utility>

namespace pathways::transport {
namespace {

// Beyond so much the other end is told at once what was taken, so that it keeps little.
constexpr uint64_t kMaxUntold = 256;
constexpr size_t kMaxUntoldBytes = size_t{1} << 20;

}  // namespace

Frames Line::Out(Frames message) {
  if (std::string* head = message[0].text()) wire::PatchNumber(*head, link_.next_sequence());
  Frames sent = ShareAll(message);
  const size_t before = link_.kept_bytes();
  link_.Keep({0, 0, std::move(message)});
  latest_bytes_ = link_.kept_bytes() - before;
  return sent;
}

Status Line::CheckRoom() const {
  const size_t count = link_.next_sequence() - link_.first_kept();
  if (count <= limits_.messages && link_.kept_bytes() <= limits_.bytes + latest_bytes_) return OkStatus();
  return ResourceExhausted("expected at most " + std::to_string(limits_.messages) + " messages and " +
                           std::to_string(limits_.bytes >> 20) + " MiB that the other end has not taken, got " +
                           std::to_string(count) + " messages and " + std::to_string(link_.kept_bytes() >> 20) +
                           " MiB: it does not read what it is sent");
}

Status Line::Seen(uint64_t received, Link::Dropped* dropped) {
  if (!link_.HasSent(received)) {
    return InvalidArgument("expected at most the " + std::to_string(link_.next_sequence() - 1) +
                           " messages that were sent to have been taken, got " + std::to_string(received));
  }
  link_.Seen(received, dropped);
  return OkStatus();
}

Link::Verdict Line::In(uint32_t number, size_t bytes) {
  const Link::Verdict verdict = link_.Take(wire::NumberOf(number, link_.received()));
  if (verdict == Link::Verdict::kNew) untold_bytes_ += bytes;
  return verdict;
}

bool Line::OwesWord() const { return link_.untold() >= kMaxUntold || untold_bytes_ >= kMaxUntoldBytes; }

uint64_t Line::Tell() {
  link_.Told();
  untold_bytes_ = 0;
  return link_.received();
}

}  // namespace pathways::transport
