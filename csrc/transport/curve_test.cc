// Who may listen, who may call.
#include "csrc/transport/curve.h"

#include <unistd.h>

#include "csrc/transport/endpoint.h"
#include "csrc/transport/test_support.h"

namespace pathways::transport::testing {
namespace {

TEST(LoopbackIsJudgedByAddressOnly) {
  for (const char* endpoint : {"ipc:///run/x", "ipc://@abstract", "inproc://x", "tcp://127.0.0.1:5555",
                               "tcp://127.0.0.1:*", "tcp://127.9.8.7:1", "tcp://localhost:1", "tcp://[::1]:1"}) {
    if (!IsLoopback(endpoint)) EXPECT_EQ(endpoint, "loopback");
  }
  for (const char* endpoint :
       {"tcp://*:5555", "tcp://0.0.0.0:1", "tcp://10.0.0.1:1", "tcp://eth0:1", "tcp://lo:1", "tcp://[::]:1",
        "tcp://127.0.0.1.example.com:1", "tcp://127.0.0.1", "tcp://localhost.example.com:1", "tcp://128.0.0.1:1",
        "tcp://127.0.0.1:1;10.0.0.1:2", "udp://127.0.0.1:1", "", "tcp://", "tcp://:1", "tcp://[::1:1"}) {
    if (IsLoopback(endpoint)) EXPECT_EQ(endpoint, "not loopback");
  }
}

TEST(PlainSocketsStayOnThisMachine) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(auto socket, Socket::Open({.kind = SocketKind::kRouter}));
  const Status bind = socket->Bind("tcp://0.0.0.0:*").status();
  EXPECT_EQ(bind.code(), Code::kPermissionDenied);
  EXPECT_HAS(bind.ToString(), "CURVE");
  EXPECT_EQ(socket->Connect("tcp://192.0.2.1:5555").code(), Code::kPermissionDenied);
}

// A listener with `cluster`'s keys and a caller; what the listener and the caller see.
struct Meeting {
  Counter arrived, connected, refused, answered;
  Handler at_listener{[this](Socket& s, std::string_view peer, Frames& frames) {
                        EXPECT_EQ(frames[0].bytes(), "secret");
                        arrived.Add();
                        EXPECT_OK(s.Send(peer, Frame("answer")));
                      },
                      [this](Socket&, const PeerEvent& event) { Note(event); }};
  Handler at_caller{[this](Socket&, std::string_view, Frames&) { answered.Add(); },
                    [this](Socket&, const PeerEvent& event) { Note(event); }};
  std::unique_ptr<Reactor> reactor;
  std::shared_ptr<Socket> listener, caller;

  void Note(const PeerEvent& event) {
    if (event.kind == PeerEventKind::kConnected) connected.Add();
    if (event.kind == PeerEventKind::kHandshakeFailed) refused.Add();
  }
  Status Start(const CurveOptions& listens, const CurveOptions& calls, const std::string& endpoint) {
    PW_ASSIGN_OR_RETURN(reactor, Reactor::Start({.name = "meeting"}));
    PW_ASSIGN_OR_RETURN(listener, Socket::Open({.kind = SocketKind::kRouter, .curve = listens}));
    PW_ASSIGN_OR_RETURN(caller, Socket::Open({.kind = SocketKind::kDealer, .curve = calls}));
    PW_RETURN_IF_ERROR(reactor->Add(listener, &at_listener));
    PW_RETURN_IF_ERROR(reactor->Add(caller, &at_caller));
    PW_ASSIGN_OR_RETURN(std::string bound, listener->Bind(endpoint));
    const size_t wildcard = bound.find("0.0.0.0");
    if (wildcard != std::string::npos) bound.replace(wildcard, 7, "127.0.0.1");
    PW_RETURN_IF_ERROR(caller->Connect(bound));
    return caller->Send("", Frame("secret"));
  }
  ~Meeting() {
    if (listener) listener->Close();
    if (caller) caller->Close();
  }
};

TEST(MembersOfTheClusterMeet) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveKeyPair cluster, GenerateCurveKeyPair());
  EXPECT_EQ(cluster.public_key.size(), 40);
  Meeting meeting;
  ASSERT_OK(meeting.Start({.keys = cluster, .allowed_client_keys = {cluster.public_key}},
                          {.keys = cluster, .server_public_key = cluster.public_key}, "tcp://0.0.0.0:*"));
  EXPECT(meeting.arrived.WaitFor(1));
  EXPECT(meeting.answered.WaitFor(1));
  EXPECT(meeting.connected.WaitFor(2));
  EXPECT_EQ(meeting.refused.value(), 0);
}

void ExpectRefused(const CurveOptions& listens, const CurveOptions& calls) {
  Meeting meeting;
  ASSERT_OK(meeting.Start(listens, calls, "tcp://127.0.0.1:*"));
  EXPECT(meeting.refused.WaitFor(1));
  // Sent too late, to nobody: the event has said it, or is about to.
  for (int i = 0; i < 100; ++i) ASSERT_OK(meeting.caller->Send("", Frame("secret")));
  EXPECT_EQ(meeting.arrived.value(), 0);
  EXPECT_EQ(meeting.connected.value(), 0);
}

TEST(StrangersAreRefused) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveKeyPair cluster, GenerateCurveKeyPair());
  ASSERT_OK_AND_ASSIGN(CurveKeyPair stranger, GenerateCurveKeyPair());
  const CurveOptions listens{.keys = cluster, .allowed_client_keys = {cluster.public_key}};
  ExpectRefused(listens, {.keys = stranger, .server_public_key = cluster.public_key});  // not admitted
  ExpectRefused(listens, {.keys = cluster, .server_public_key = stranger.public_key});  // wrong listener
  ExpectRefused(listens, {});                                                           // no keys at all
}

TEST(KeysAreChecked) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveKeyPair keys, GenerateCurveKeyPair());
  EXPECT_EQ(Socket::Open({.kind = SocketKind::kRouter, .curve = {.keys = keys}}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Socket::Open({.kind = SocketKind::kRouter, .curve = {.keys = keys, .allowed_client_keys = {"short"}}})
                .status()
                .code(),
            Code::kInvalidArgument);
  EXPECT(!Socket::Open({.curve = {.keys = {"bad", "keys"}, .server_public_key = keys.public_key}}).ok());
  ASSERT_OK_AND_ASSIGN(auto caller, Socket::Open({.curve = {.keys = keys, .server_public_key = keys.public_key}}));
  EXPECT_EQ(caller->Bind("tcp://127.0.0.1:*").status().code(), Code::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(
      auto listener,
      Socket::Open({.kind = SocketKind::kRouter, .curve = {.keys = keys, .allowed_client_keys = {keys.public_key}}}));
  EXPECT_EQ(listener->Connect("tcp://127.0.0.1:1").code(), Code::kInvalidArgument);
}

constexpr char kToken[] = "pw1-000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f91267e8a";

TEST(ATokenMakesOnePairOfKeys) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveOptions ours, CurveOfToken(kToken));
  ASSERT_OK_AND_ASSIGN(CurveOptions theirs, CurveOfToken(kToken));
  EXPECT_EQ(ours.keys.public_key.size(), 40);
  EXPECT_EQ(ours.keys.public_key, theirs.keys.public_key);
  EXPECT_EQ(ours.keys.public_key, ours.server_public_key);
  EXPECT_NE(ours.keys.public_key, ours.keys.secret_key);
  ASSERT_OK_AND_ASSIGN(CurveOptions none, CurveOfToken(""));
  EXPECT(!none.enabled());
  for (std::string bad : {"pw1-", "00", "pw2-000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f91267e8a",
                          "pw1-0001020304050607G8090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f91267e8a"}) {
    const Status status = CurveOfToken(bad).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    if (bad.size() > 8) EXPECT(status.ToString().find(bad.substr(4)) == std::string::npos);
  }
}

// As a worker's data plane: one socket binds and connects, and unix sockets need no keys.
TEST(AMemberBindsAndConnectsOnOneSocket) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveOptions member, CurveOfToken(kToken));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "members"}));
  Counter at_first, at_second, plain;
  Handler first_handler{[&](Socket&, std::string_view, Frames&) { at_first.Add(); }, [](Socket&, const PeerEvent&) {}};
  Handler second_handler{[&](Socket&, std::string_view, Frames&) { at_second.Add(); },
                         [](Socket&, const PeerEvent&) {}};
  ASSERT_OK_AND_ASSIGN(auto first, Socket::Open({.kind = SocketKind::kRouter, .identity = "first", .curve = member}));
  ASSERT_OK_AND_ASSIGN(auto second, Socket::Open({.kind = SocketKind::kRouter, .identity = "second", .curve = member}));
  ASSERT_OK(reactor->Add(first, &first_handler));
  ASSERT_OK(reactor->Add(second, &second_handler));
  ASSERT_OK_AND_ASSIGN(std::string to_first, first->Bind("tcp://127.0.0.1:*"));
  ASSERT_OK(second->ConnectAs(to_first, "to/first"));
  ASSERT_OK(second->Send("to/first", Frame("hello")));
  EXPECT(at_first.WaitFor(1));
  // It still binds after it has connected.
  ASSERT_OK_AND_ASSIGN(std::string to_second, second->Bind("tcp://127.0.0.1:*"));
  ASSERT_OK(first->ConnectAs(to_second, "to/second"));
  ASSERT_OK(first->Send("to/second", Frame("hello")));
  EXPECT(at_second.WaitFor(1));
  // A caller without keys: over ipc it is heard, over tcp it is not.
  const std::string path = "ipc:///tmp/pw-curve-test-" + std::to_string(getpid());
  ASSERT_OK_AND_ASSIGN(std::string to_path, first->Bind(path));
  ASSERT_OK_AND_ASSIGN(auto stranger, Socket::Open({.kind = SocketKind::kDealer}));
  ASSERT_OK(stranger->Connect(to_path));
  ASSERT_OK(stranger->Send("", Frame("hello")));
  EXPECT(at_first.WaitFor(2));
  first->Close();
  second->Close();
  stranger->Close();
}

TEST(ARefusedCallerIsNamed) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveOptions member, CurveOfToken(kToken));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "door"}));
  Counter refused;
  std::string address;
  Handler handler{[](Socket&, std::string_view, Frames&) {},
                  [&](Socket&, const PeerEvent& event) {
                    if (event.kind != PeerEventKind::kHandshakeFailed) return;
                    if (refused.value() == 0) address = event.address;
                    refused.Add();
                  }};
  ASSERT_OK_AND_ASSIGN(auto listener, Socket::Open({.kind = SocketKind::kRouter, .curve = member}));
  ASSERT_OK(reactor->Add(listener, &handler));
  ASSERT_OK_AND_ASSIGN(std::string bound, listener->Bind("tcp://127.0.0.1:*"));
  ASSERT_OK_AND_ASSIGN(auto stranger, Socket::Open({.kind = SocketKind::kDealer}));
  ASSERT_OK(stranger->Connect(bound));
  EXPECT(refused.WaitFor(1));
  stranger->Close();
  listener->Close();
  reactor->Stop();
  EXPECT(address == "127.0.0.1" || address.empty());  // empty: the connection was gone before it could be asked
}

TEST(Ipv6LiteralsAreServed) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(auto listener, Socket::Open({.kind = SocketKind::kRouter}));
  Result<std::string> bound = listener->Bind("tcp://[::1]:*");
  if (!bound.ok()) return;  // a machine without IPv6
  EXPECT(bound->starts_with("tcp://[::1]:"));
  ASSERT_OK_AND_ASSIGN(std::string four, listener->Bind("tcp://127.0.0.1:*"));
  EXPECT(four.starts_with("tcp://127.0.0.1:"));
}

TEST(AnEndpointIsToldWithAnotherHost) {
  EXPECT_EQ(WithHost("tcp://0.0.0.0:7450", "10.0.0.1"), "tcp://10.0.0.1:7450");
  EXPECT_EQ(WithHost("tcp://[::]:7450", "fd00::1"), "tcp://[fd00::1]:7450");
  EXPECT_EQ(WithHost("tcp://0.0.0.0:7450", "[fd00::1]"), "tcp://[fd00::1]:7450");
  EXPECT_EQ(WithHost("tcp://0.0.0.0:7450", ""), "tcp://0.0.0.0:7450");
  EXPECT_EQ(WithHost("ipc:///run/x", "10.0.0.1"), "ipc:///run/x");
}

}  // namespace
}  // namespace pathways::transport::testing
