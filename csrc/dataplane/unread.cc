#include "csrc/dataplane/unread.h"

namespace pathways::dataplane {
namespace {

// Shorter frames are bounded by the number of messages.
constexpr size_t kCounted = 1024;

}  // namespace

void Unread::Count(transport::Frame& frame) {
  const size_t size = frame.size();
  if (size < kCounted) return;
  bytes_->fetch_add(size, std::memory_order_relaxed);
  auto held = std::make_shared<transport::Frame>(std::move(frame));
  const char* const data = held->data();
  frame = transport::Frame::Borrow(data, size, [held, size, bytes = bytes_] {
    *held = transport::Frame();
    bytes->fetch_sub(size, std::memory_order_relaxed);
  });
}

}  // namespace pathways::dataplane
