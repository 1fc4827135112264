// Frame: one frame of a ZeroMQ message, in or out, without copying its bytes where that matters.
//
// Ownership: a frame owns a std::string, owns a received zmq_msg, or borrows memory and calls `release` once when the
//            bytes are no longer needed. Move-only.
// Threads:   a frame belongs to one thread at a time. After Send the `release` of a borrowed frame runs on libzmq's
//            I/O thread (or inside Send, when it fails): it must be short, must not block and must not use the socket.
#ifndef PTPATHWAYS_TRANSPORT_FRAME_H_
#define PTPATHWAYS_TRANSPORT_FRAME_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/transport/zmq_api.h"

namespace pathways::transport {

class Frame {
 public:
  Frame() = default;                                     // empty
  Frame(std::string bytes) : body_(std::move(bytes)) {}  // NOLINT: implicit by design
  explicit Frame(std::string_view bytes) : body_(std::string(bytes)) {}
  explicit Frame(const char* text) : body_(std::string(text)) {}

  // Sends `size` bytes at `data` without copying; they must stay valid and unchanged until `release` is called.
  static Frame Borrow(const void* data, size_t size, std::function<void()> release);

  Frame(Frame&& other) noexcept = default;
  Frame& operator=(Frame&& other) noexcept = default;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  const char* data() const { return bytes().data(); }
  size_t size() const { return bytes().size(); }
  // Valid until the frame is moved or destroyed (a short received frame keeps its bytes inside itself).
  std::string_view bytes() const;
  // Of a received frame: as what its sender was admitted (AllowedKey::role, kSameUser); empty when it was not asked.
  std::string_view sender() const;
  // Of a received frame: the IP address that it came from; empty when it came by no network.
  std::string_view address() const;

  // A second frame of the same bytes. Short ones are copied; others have one owner between them, and the `release` of
  // borrowed bytes is called when both frames are done with them.
  Frame Share();
  // The bytes of a frame made of a string, to be changed before it is sent or shared; null for others.
  std::string* text() { return std::get_if<std::string>(&body_); }

  // For Socket only: turns the frame into an initialised libzmq message and leaves it empty.
  void MoveInto(ZmqMessage* message);
  // For Socket only: takes over an initialised message, leaving `message` initialised and empty.
  static Frame FromMessage(ZmqMessage* message);

 private:
  class Received {  // an initialised zmq_msg
   public:
    explicit Received(ZmqMessage* from);
    Received(Received&& other) noexcept;
    Received& operator=(Received&& other) noexcept;
    ~Received();
    mutable ZmqMessage message;
  };
  class Borrowed {
   public:
    Borrowed(const void* data, size_t size, std::function<void()> release)
        : data(data), size(size), release(std::move(release)) {}
    Borrowed(Borrowed&& other) noexcept;
    Borrowed& operator=(Borrowed&& other) noexcept;
    ~Borrowed();
    const void* data;
    size_t size;
    std::function<void()> release;
  };

  std::string_view Property(const char* name) const;

  std::variant<std::string, Received, Borrowed> body_;
};

using Frames = std::vector<Frame>;
// A second message of the same frames.
Frames ShareAll(Frames& frames);

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_FRAME_H_
