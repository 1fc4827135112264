// A link to a controller in another process.
#include "csrc/client/session.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"

namespace pathways::client {
namespace {

class ZmqLink : public Link, private transport::SocketHandler {
 public:
  ZmqLink(Sink sink, std::function<void(Status)> lost) : sink_(std::move(sink)), lost_(std::move(lost)) {}
  ~ZmqLink() override { Close(); }

  Status Open(const std::string& endpoint, const transport::CurveOptions& curve, std::chrono::milliseconds lease) {
    refused_ = transport::RefusedText(endpoint, curve);
    transport::SocketOptions options;
    options.kind = transport::SocketKind::kDealer;
    options.linger = std::chrono::milliseconds(200);
    options.max_message_bytes = int64_t{1} << 31;
    options.heartbeat_interval = std::chrono::milliseconds(1000);
    options.heartbeat_timeout = lease;
    options.curve = curve;
    PW_ASSIGN_OR_RETURN(socket_, transport::Socket::Open(options));
    PW_RETURN_IF_ERROR(socket_->Connect(endpoint));
    PW_ASSIGN_OR_RETURN(reactor_, transport::Reactor::Start({.name = "pw-client"}));
    return reactor_->Add(socket_, this);
  }

  Status Send(std::string head, std::vector<Payload> payloads) override {
    transport::Frames frames;
    frames.emplace_back(std::move(head));
    for (Payload& payload : payloads) {
      frames.push_back(transport::Frame::Borrow(payload->data(), payload->size(), [payload] {}));
    }
    return socket_->Send({}, std::move(frames));
  }

  void Close() override {
    if (!reactor_) return;
    reactor_->Stop();
    socket_->Close();
    reactor_.reset();
  }

 private:
  void OnMessage(transport::Socket&, std::string_view, transport::Frames& frames) override {
    if (frames.empty()) return;
    std::vector<Payload> payloads;
    for (size_t i = 1; i < frames.size(); ++i) {
      payloads.push_back(std::make_shared<const std::string>(frames[i].bytes()));
    }
    sink_(std::string(frames[0].bytes()), std::move(payloads));
  }
  void OnPeerEvent(transport::Socket&, const transport::PeerEvent& event) override {
    if (event.kind == transport::PeerEventKind::kDisconnected) {
      lost_(Unavailable("the controller closed the connection or does not answer"));
    } else if (event.kind == transport::PeerEventKind::kHandshakeFailed) {
      lost_(Unavailable(refused_));
    }
  }

  const Sink sink_;
  const std::function<void(Status)> lost_;
  std::string refused_;
  std::shared_ptr<transport::Socket> socket_;
  std::unique_ptr<transport::Reactor> reactor_;
};

}  // namespace

Result<std::unique_ptr<Link>> OpenZmqLink(const std::string& endpoint, const transport::CurveOptions& curve,
                                          std::chrono::milliseconds lease, Link::Sink sink,
                                          std::function<void(Status)> lost) {
  auto link = std::make_unique<ZmqLink>(std::move(sink), std::move(lost));
  PW_RETURN_IF_ERROR(link->Open(endpoint, curve, lease));
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace pathways::client
