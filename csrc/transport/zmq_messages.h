// Messages on their way into a libzmq socket and out of it.
//
// Ownership: each owns the messages that libzmq has not taken. Threads: one at a time, the one that holds the socket.
#ifndef PTPATHWAYS_TRANSPORT_ZMQ_MESSAGES_H_
#define PTPATHWAYS_TRANSPORT_ZMQ_MESSAGES_H_

#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

#include "csrc/transport/frame.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::transport {

// Initialised messages on their way to libzmq. Those that were not sent are closed on destruction: declare it before
// taking the lock, so that releases of borrowed frames run without it.
class Outgoing {
 public:
  explicit Outgoing(size_t capacity) {
    if (capacity > inline_.size()) {
      many_.resize(capacity);
      messages_ = many_.data();
    }
  }
  ~Outgoing() {
    for (size_t i = sent_; i < count_; ++i) Zmq().message_close(&messages_[i]);
  }
  void AddCopy(std::string_view bytes) {
    Frame frame(bytes);
    Add(frame);
  }
  void Add(Frame& frame) { frame.MoveInto(&messages_[count_++]); }

  // 0, or libzmq's error number.
  int SendAll(void* socket) {
    while (sent_ < count_) {
      const int flags = zmq::kDontWait | (sent_ + 1 < count_ ? zmq::kSendMore : 0);
      if (Zmq().message_send(&messages_[sent_], socket, flags) < 0) {
        const int error = Zmq().error_number();
        if (error == EINTR) continue;
        return error;
      }
      ++sent_;
    }
    return 0;
  }

 private:
  std::array<ZmqMessage, 6> inline_;
  std::vector<ZmqMessage> many_;
  ZmqMessage* messages_ = inline_.data();
  size_t count_ = 0;
  size_t sent_ = 0;
};

// A message being received; always initialised.
struct Incoming {
  Incoming() { Zmq().message_init(&message); }
  ~Incoming() { Zmq().message_close(&message); }
  // False when there is nothing (or the socket is unusable).
  bool Receive(void* socket) {
    for (;;) {
      if (Zmq().message_receive(&message, socket, zmq::kDontWait) >= 0) return true;
      if (Zmq().error_number() != EINTR) return false;
    }
  }
  bool more() const { return Zmq().message_more(&message) != 0; }
  std::string_view bytes() {
    return {static_cast<const char*>(Zmq().message_data(&message)), Zmq().message_size(&message)};
  }
  ZmqMessage message;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_ZMQ_MESSAGES_H_
