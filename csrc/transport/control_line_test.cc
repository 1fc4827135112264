// A member's end of its line: which keys it calls with after they were changed.
#include "csrc/transport/control_line.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "csrc/transport/keys.h"
#include "csrc/transport/line.h"
#include "csrc/transport/test_support.h"
#include "csrc/wire/bodies.h"

namespace pathways::transport::testing {
namespace {

CurveOptions Listens(const CurveKeyPair& keys) { return {.keys = keys, .allowed_client_keys = {keys.public_key}}; }
CurveOptions Calls(const CurveKeyPair& keys) { return {.keys = keys, .server_public_key = keys.public_key}; }

// A controller of one member: welcomes it, and answers every heartbeat.
class Answerer {
 public:
  Counter connected, beats;

  Status Listen(const CurveKeyPair& keys, const std::string& endpoint) {
    PW_ASSIGN_OR_RETURN(reactor_, Reactor::Start({.name = "answerer"}));
    PW_ASSIGN_OR_RETURN(socket_, Socket::Open({.kind = SocketKind::kRouter, .curve = Listens(keys)}));
    PW_RETURN_IF_ERROR(reactor_->Add(socket_, &handler_));
    PW_ASSIGN_OR_RETURN(endpoint_, socket_->Bind(endpoint));
    return OkStatus();
  }
  const std::string& endpoint() const { return endpoint_; }
  // Ends the connections, which may be made again with `keys`.
  Status Rebind(const CurveKeyPair& keys) {
    PW_RETURN_IF_ERROR(socket_->SetCurve(Listens(keys)));
    Counter done;
    Status status;
    reactor_->Post([&] {
      status = socket_->Rebind(endpoint_, std::chrono::seconds(10));
      done.Add();
    });
    done.WaitFor(1);
    return status;
  }
  ~Answerer() {
    if (socket_) socket_->Close();
  }

 private:
  void Answer(Socket& socket, std::string_view peer, Frames& frames) {
    const Result<wire::Head> head = wire::DecodeHead(frames[0].bytes());
    if (!head.ok()) return;
    if (head->header.type == wire::Type::kHello) {
      const Result<wire::Hello> hello = wire::Decode<wire::Hello>(head->body);
      if (!hello.ok() || line_) return;
      line_.emplace(hello->line, LineLimits{100, 1 << 20});
      Frames welcome;
      wire::Welcome text;
      text.lease_ms = 60'000;
      welcome.emplace_back(wire::Encode(text));
      EXPECT_OK(socket.Send(peer, line_->Out(std::move(welcome))));
      return;
    }
    beats.Add();
    (void)socket.Send(peer, Frame(wire::Encode(wire::Heartbeat{})));  // it may have ended
  }

  std::unique_ptr<Reactor> reactor_;
  std::shared_ptr<Socket> socket_;
  std::string endpoint_;
  std::optional<Line> line_;
  Handler handler_{[this](Socket& socket, std::string_view peer, Frames& frames) { Answer(socket, peer, frames); },
                   [this](Socket&, const PeerEvent& event) {
                     if (event.kind == PeerEventKind::kConnected) connected.Add();
                   }};
};

struct Member : ControlLine::Handler {
  Counter welcomed, lost;
  void OnMessage(Frames&) override { welcomed.Add(); }
  void OnLost(const Status& status) override {
    EXPECT_OK(status);
    lost.Add();
  }
};

// As happens to a member that is stopped while keys are changed: its connection was cut and made again, with the former
// keys, before it could look. That the second one was made it hears after it has begun to call with the next ones.
TEST(AMemberThatHearsLateOfAConnectionDoesNotTakeItsKeysForTheNextOnes) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair former, GenerateCurveKeyPair());
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair next, GenerateCurveKeyPair());
  Answerer controller;
  ASSERT_OK(controller.Listen(former, "tcp://127.0.0.1:*"));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "member"}));
  ASSERT_OK_AND_ASSIGN(auto line, ControlLine::Open(controller.endpoint(), Calls(former)));
  Member member;
  ASSERT_OK(line->Attach(reactor.get(), &member));
  ASSERT_OK(line->Join(wire::Hello()));
  ASSERT(member.welcomed.WaitFor(1));
  ASSERT(controller.connected.WaitFor(1));

  Counter stopped, goes_on;
  reactor->Post([&] {
    stopped.Add();
    goes_on.WaitFor(1);
  });
  ASSERT(stopped.WaitFor(1));
  line->Rotate(Calls(next));
  ASSERT_OK(controller.Rebind(former));
  ASSERT(controller.connected.WaitFor(2));
  goes_on.Add();
  EXPECT(controller.connected.WaitFor(3));  // it has tried the next ones, and the former ones again
  const uint64_t by_former = controller.connected.value();
  ASSERT_OK(controller.Rebind(next));  // and now they are asked for
  EXPECT(controller.connected.WaitFor(by_former + 1));
  const uint64_t beats = controller.beats.value();
  EXPECT(controller.beats.WaitFor(beats + 1));
  EXPECT_EQ(member.lost.value(), 0);
  line->Close();
  reactor->Stop();
}

// As a controller that is killed while it is stopped: the kernel has taken the connection, and nobody answers it.
TEST(AConnectionThatEndsOnceBeforeItIsOneIsMadeAgain) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(const CurveKeyPair keys, GenerateCurveKeyPair());
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string endpoint = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));

  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "member"}));
  ASSERT_OK_AND_ASSIGN(auto line, ControlLine::Open(endpoint, Calls(keys)));
  Member member;
  ASSERT_OK(line->Attach(reactor.get(), &member));
  ASSERT_OK(line->Join(wire::Hello()));
  const int connection = ::accept(listener, nullptr, nullptr);
  ASSERT(connection >= 0);
  const linger at_once{.l_onoff = 1, .l_linger = 0};  // the port is free then
  ASSERT_EQ(::setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  ::close(listener);
  ::close(connection);
  Answerer controller;
  ASSERT_OK(controller.Listen(keys, endpoint));
  EXPECT(member.welcomed.WaitFor(1));
  EXPECT_EQ(member.lost.value(), 0);
  line->Close();
  reactor->Stop();
}

}  // namespace
}  // namespace pathways::transport::testing
