#include "csrc/transport/frame.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace pathways::transport {
namespace {

// Below this, copying into the message beats a second allocation and a callback on the I/O thread.
constexpr size_t kCopyBytes = 4096;

// What libzmq hands back on its I/O thread when it is done with the memory. `handed_over` carries the ordering between
// the two threads in a form that race detectors see through an uninstrumented libzmq.
struct Keeper {
  std::string bytes;
  std::function<void()> release;
  std::atomic<bool> handed_over{false};
};

void FreeKeeper(void* /*data*/, void* hint) {
  auto* keeper = static_cast<Keeper*>(hint);
  (void)keeper->handed_over.load(std::memory_order_acquire);
  if (keeper->release) keeper->release();
  delete keeper;
}

void CheckInit(int rc) {
  if (rc == 0) return;
  std::fputs("ptpathways: out of memory for a message\n", stderr);
  std::abort();
}

void InitFromKeeper(ZmqMessage* message, const void* data, size_t size, Keeper* keeper) {
  keeper->handed_over.store(true, std::memory_order_release);
  CheckInit(Zmq().message_init_data(message, const_cast<void*>(data), size, &FreeKeeper, keeper));
}

}  // namespace

Frame::Received::Received(ZmqMessage* from) {
  Zmq().message_init(&message);
  Zmq().message_move(&message, from);
}

Frame::Received::Received(Received&& other) noexcept : Received(&other.message) {}

Frame::Received& Frame::Received::operator=(Received&& other) noexcept {
  if (this != &other) Zmq().message_move(&message, &other.message);
  return *this;
}

Frame::Received::~Received() { Zmq().message_close(&message); }

Frame::Borrowed::Borrowed(Borrowed&& other) noexcept
    : data(other.data), size(other.size), release(std::exchange(other.release, nullptr)) {}

Frame::Borrowed& Frame::Borrowed::operator=(Borrowed&& other) noexcept {
  if (this != &other) {
    if (release) release();
    data = other.data;
    size = other.size;
    release = std::exchange(other.release, nullptr);
  }
  return *this;
}

Frame::Borrowed::~Borrowed() {
  if (release) release();
}

Frame Frame::Borrow(const void* data, size_t size, std::function<void()> release) {
  Frame frame;
  frame.body_.emplace<Borrowed>(data, size, std::move(release));
  return frame;
}

Frame Frame::Share() {
  if (auto* borrowed = std::get_if<Borrowed>(&body_)) {
    const void* const data = borrowed->data;
    const size_t size = borrowed->size;
    struct Owner {
      std::function<void()> release;
      ~Owner() {
        if (release) release();
      }
    };
    auto owner = std::make_shared<Owner>();
    owner->release = std::exchange(borrowed->release, nullptr);
    borrowed->release = [owner] {};
    return Borrow(data, size, [owner] {});
  }
  const auto* owned = std::get_if<std::string>(&body_);
  if (owned == nullptr || owned->size() <= kCopyBytes) {
    // The copy is the message that MoveInto would make of it.
    const std::string_view from = bytes();
    ZmqMessage copy;
    CheckInit(Zmq().message_init_size(&copy, from.size()));
    if (!from.empty()) std::memcpy(Zmq().message_data(&copy), from.data(), from.size());
    return FromMessage(&copy);
  }
  auto owner = std::make_shared<const std::string>(std::move(*std::get_if<std::string>(&body_)));
  *this = Borrow(owner->data(), owner->size(), [owner] {});
  return Borrow(owner->data(), owner->size(), [owner] {});
}

Frames ShareAll(Frames& frames) {
  Frames shared;
  shared.reserve(frames.size());
  for (Frame& frame : frames) shared.push_back(frame.Share());
  return shared;
}

std::string_view Frame::bytes() const {
  if (const auto* owned = std::get_if<std::string>(&body_)) return *owned;
  if (const auto* received = std::get_if<Received>(&body_)) {
    return {static_cast<const char*>(Zmq().message_data(&received->message)), Zmq().message_size(&received->message)};
  }
  const auto& borrowed = std::get<Borrowed>(body_);
  return {static_cast<const char*>(borrowed.data), borrowed.size};
}

std::string_view Frame::Property(const char* name) const {
  const auto* received = std::get_if<Received>(&body_);
  const char* value = received != nullptr ? Zmq().message_gets(&received->message, name) : nullptr;
  return value != nullptr ? value : "";
}

std::string_view Frame::sender() const { return Property("User-Id"); }

std::string_view Frame::address() const { return Property("Peer-Address"); }

void Frame::MoveInto(ZmqMessage* message) {
  if (auto* owned = std::get_if<std::string>(&body_)) {
    if (owned->size() <= kCopyBytes) {
      CheckInit(Zmq().message_init_size(message, owned->size()));
      std::memcpy(Zmq().message_data(message), owned->data(), owned->size());
      owned->clear();
    } else {
      auto* keeper = new Keeper;
      keeper->bytes = std::move(*owned);
      InitFromKeeper(message, keeper->bytes.data(), keeper->bytes.size(), keeper);
    }
  } else if (auto* received = std::get_if<Received>(&body_)) {
    Zmq().message_init(message);
    Zmq().message_move(message, &received->message);
  } else {
    auto& borrowed = std::get<Borrowed>(body_);
    auto* keeper = new Keeper;
    keeper->release = std::exchange(borrowed.release, nullptr);
    InitFromKeeper(message, borrowed.data, borrowed.size, keeper);
  }
  body_.emplace<std::string>();
}

Frame Frame::FromMessage(ZmqMessage* message) {
  Frame frame;
  frame.body_.emplace<Received>(message);
  return frame;
}

}  // namespace pathways::transport
