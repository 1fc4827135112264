// Who may listen, who may call.
#include "csrc/transport/curve.h"

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
  EXPECT_EQ(bind.code(), Code::kFailedPrecondition);
  EXPECT_HAS(bind.ToString(), "CURVE");
  EXPECT_EQ(socket->Connect("tcp://192.0.2.1:5555").code(), Code::kFailedPrecondition);
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

}  // namespace
}  // namespace pathways::transport::testing
