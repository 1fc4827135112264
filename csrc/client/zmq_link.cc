// A link to a controller in another process.
#include "csrc/client/session.h"
#include "csrc/transport/control_line.h"
#include "csrc/transport/reactor.h"

namespace pathways::client {
namespace {

class ZmqLink : public Link, private transport::ControlLine::Handler {
 public:
  ZmqLink(Sink sink, std::function<void(Status)> lost) : sink_(std::move(sink)), lost_(std::move(lost)) {}
  ~ZmqLink() override { Close(); }

  Status Open(const std::string& endpoint, const transport::CurveOptions& curve) {
    PW_ASSIGN_OR_RETURN(line_, transport::ControlLine::Open(endpoint, curve));
    PW_ASSIGN_OR_RETURN(reactor_, transport::Reactor::Start({.name = "pw-client"}));
    return line_->Attach(reactor_.get(), this);
  }

  Status Join(wire::Hello hello) override { return line_->Join(std::move(hello)); }

  Status Send(std::string head, std::vector<Payload> payloads) override {
    transport::Frames frames;
    frames.reserve(1 + payloads.size());
    frames.emplace_back(std::move(head));
    for (Payload& payload : payloads) {
      frames.push_back(transport::Frame::Borrow(payload->data(), payload->size(), [payload] {}));
    }
    return line_->Send(std::move(frames));
  }

  void Rotate(const transport::CurveOptions& curve) override { line_->Rotate(curve); }

  void Beat() override { line_->Beat(); }

  void Close() override {
    if (!reactor_) return;
    reactor_->Stop();
    line_->Close();
    reactor_.reset();
  }

 private:
  void OnMessage(transport::Frames& frames) override {
    std::vector<Payload> payloads;
    for (size_t i = 1; i < frames.size(); ++i) {
      payloads.push_back(std::make_shared<const std::string>(frames[i].bytes()));
    }
    sink_(std::string(frames[0].bytes()), std::move(payloads));
  }
  void OnLost(const Status& status) override { lost_(status); }

  const Sink sink_;
  const std::function<void(Status)> lost_;
  std::unique_ptr<transport::ControlLine> line_;
  std::unique_ptr<transport::Reactor> reactor_;
};

}  // namespace

Result<std::unique_ptr<Link>> OpenZmqLink(const std::string& endpoint, const transport::CurveOptions& curve,
                                          Link::Sink sink, std::function<void(Status)> lost) {
  auto link = std::make_unique<ZmqLink>(std::move(sink), std::move(lost));
  PW_RETURN_IF_ERROR(link->Open(endpoint, curve));
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace pathways::client
