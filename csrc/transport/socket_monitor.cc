#include "csrc/transport/socket_monitor.h"

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "csrc/transport/zmq_api.h"
#include "csrc/transport/zmq_messages.h"

namespace pathways::transport {
namespace {

std::atomic<uint64_t> next_monitor{1};

}  // namespace

Status SocketMonitor::Open(void* socket) {
  PW_ASSIGN_OR_RETURN(void* context, ZmqContext());
  const std::string endpoint = "inproc://pw-monitor-" + std::to_string(next_monitor.fetch_add(1));
  const int events = zmq::kEventConnected | zmq::kEventAccepted | zmq::kEventClosed | zmq::kEventDisconnected |
                     zmq::kEventHandshakeSucceeded | zmq::kEventHandshakeFailedNoDetail |
                     zmq::kEventHandshakeFailedAuth;
  if (Zmq().monitor(socket, endpoint.c_str(), events) != 0) return ZmqError("cannot monitor a socket");
  monitored_ = socket;
  socket_ = Zmq().socket(context, zmq::kPair);
  if (socket_ == nullptr) return ZmqError("cannot open a monitor socket");
  // Unlimited: libzmq's I/O thread would block on a full monitor.
  const int unlimited = 0;
  size_t size = sizeof(fd_);
  if (Zmq().set_option(socket_, zmq::kReceiveHwm, &unlimited, sizeof(unlimited)) != 0 ||
      Zmq().set_option(socket_, zmq::kLinger, &unlimited, sizeof(unlimited)) != 0 ||
      Zmq().connect(socket_, endpoint.c_str()) != 0 || Zmq().get_option(socket_, zmq::kFd, &fd_, &size) != 0) {
    return ZmqError("cannot read a socket's monitor");
  }
  return OkStatus();
}

void SocketMonitor::Close() {
  if (socket_ == nullptr) return;
  Zmq().monitor(monitored_, nullptr, 0);
  Zmq().close(std::exchange(socket_, nullptr));
}

void SocketMonitor::Drain() {
  if (socket_ == nullptr) return;
  Incoming part;
  while (part.Receive(socket_)) {
    uint16_t event = 0;
    int32_t value = 0;
    const std::string_view head = part.bytes();
    if (head.size() == sizeof(event) + sizeof(value)) {
      std::memcpy(&event, head.data(), sizeof(event));
      std::memcpy(&value, head.data() + sizeof(event), sizeof(value));
    }
    if (!part.more() || !part.Receive(socket_)) break;
    peers_.Add(event, value, part.bytes());
  }
  peers_.Enforce();
}

}  // namespace pathways::transport
