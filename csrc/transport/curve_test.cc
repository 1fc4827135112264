// Who may listen, who may call.
#include "csrc/transport/curve.h"

#include <sys/stat.h>
#include <unistd.h>

#include "csrc/transport/endpoint.h"
#include "csrc/transport/keys.h"
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

TEST(PlainSocketsStayWithTheirUser) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(auto socket, Socket::Open({.kind = SocketKind::kRouter}));
  for (const char* reachable : {"tcp://127.0.0.1:*", "ipc://@pw-abstract", "ipc:///tmp/pw-in-a-folder-of-all"}) {
    EXPECT_EQ(socket->Bind(reachable).status().code(), Code::kPermissionDenied);
    EXPECT_EQ(socket->Connect(reachable).code(), Code::kPermissionDenied);
  }
  RuntimeDirectory directory;
  EXPECT_OK(socket->Bind(directory.Ipc("private")).status());
  const Status gone = socket->Connect("ipc:///tmp/pw-no-such-folder/socket");
  EXPECT_EQ(gone.code(), Code::kNotFound);
  EXPECT_HAS(gone.ToString(), "got /tmp/pw-no-such-folder: No such file or directory");
  ASSERT_OK_AND_ASSIGN(auto insecure, Socket::Open({.kind = SocketKind::kRouter, .curve = {.insecure = true}}));
  EXPECT_OK(insecure->Bind("tcp://127.0.0.1:*").status());
  EXPECT_EQ(insecure->Bind("tcp://0.0.0.0:*").status().code(), Code::kPermissionDenied);
  const Status bind = socket->Bind("tcp://0.0.0.0:*").status();
  EXPECT_EQ(bind.code(), Code::kPermissionDenied);
  EXPECT_HAS(bind.ToString(), "join token");
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

TEST(KeysAreChangedWhileASocketListens) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveKeyPair former, GenerateCurveKeyPair());
  ASSERT_OK_AND_ASSIGN(CurveKeyPair next, GenerateCurveKeyPair());
  const auto listens = [](const CurveKeyPair& keys) {
    return CurveOptions{.keys = keys, .allowed_client_keys = {keys.public_key}};
  };
  const auto calls = [](const CurveKeyPair& keys) {
    return CurveOptions{.keys = keys, .server_public_key = keys.public_key};
  };
  RuntimeDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  for (const std::string& endpoint :
       {std::string("tcp://127.0.0.1:*"), directory.Ipc("s"), "ipc://@pw-rotates-" + std::to_string(::getpid())}) {
    Counter heard, ended;
    std::string bound;
    Handler handler{[&](Socket&, std::string_view, Frames&) { heard.Add(); },
                    [&](Socket&, const PeerEvent& event) {
                      if (event.kind == PeerEventKind::kDisconnected && !event.identity.empty()) ended.Add();
                    }};
    ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "rotates"}));
    ASSERT_OK_AND_ASSIGN(auto listener, Socket::Open({.kind = SocketKind::kRouter, .curve = listens(former)}));
    ASSERT_OK_AND_ASSIGN(bound, listener->Bind(endpoint));
    ASSERT_OK(reactor->Add(listener, &handler));
    ASSERT_OK_AND_ASSIGN(auto caller, Socket::Open({.kind = SocketKind::kDealer, .curve = calls(former)}));
    ASSERT_OK(caller->Connect(bound));
    ASSERT_OK(caller->Send("", Frame("hello")));
    EXPECT(heard.WaitFor(1));

    ASSERT_OK(listener->SetCurve(listens(next)));
    Counter rebound;
    reactor->Post([&] {
      EXPECT_OK(listener->Rebind(bound, std::chrono::seconds(10)));
      rebound.Add();
    });
    EXPECT(rebound.WaitFor(1));
    EXPECT(ended.WaitFor(1));  // although libzmq says nothing of it
    {
      Meeting stranger;  // with the former keys
      ASSERT_OK_AND_ASSIGN(stranger.reactor, Reactor::Start({.name = "stranger"}));
      ASSERT_OK_AND_ASSIGN(stranger.caller, Socket::Open({.kind = SocketKind::kDealer, .curve = calls(former)}));
      ASSERT_OK(stranger.reactor->Add(stranger.caller, &stranger.at_caller));
      ASSERT_OK(stranger.caller->Connect(bound));
      EXPECT(stranger.refused.WaitFor(1));
    }
    ASSERT_OK(caller->Disconnect(bound));
    ASSERT_OK(caller->SetCurve(calls(next)));
    ASSERT_OK(caller->Connect(bound));
    ASSERT_OK(caller->Send("", Frame("hello")));
    EXPECT(heard.WaitFor(2));
    EXPECT_EQ(heard.value(), 2);
    caller->Close();
    listener->Close();
    reactor->Stop();
  }
  ASSERT_OK_AND_ASSIGN(auto plain, Socket::Open({.kind = SocketKind::kRouter}));
  EXPECT_EQ(plain->SetCurve(listens(next)).code(), Code::kFailedPrecondition);
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
  ExpectRefused(listens, {.insecure = true});                                           // no keys at all
}

TEST(KeysAreChecked) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveKeyPair keys, GenerateCurveKeyPair());
  EXPECT_EQ(Socket::Open({.kind = SocketKind::kRouter, .curve = {.keys = keys}}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Socket::Open(
                {.kind = SocketKind::kRouter, .curve = {.keys = keys, .allowed_client_keys = {std::string("short")}}})
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

Result<CurveOptions> Worker() {
  PW_ASSIGN_OR_RETURN(const ClusterKeys keys, KeysOfToken(kToken, Role::kWorker));
  return keys.Curve(Role::kWorker);
}

TEST(ATokenMakesAPairOfKeysForEachRole) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(ClusterKeys controller, KeysOfToken(kToken, Role::kController));
  ASSERT_OK_AND_ASSIGN(ClusterKeys worker, KeysOfToken(kToken, Role::kWorker));
  ASSERT_OK_AND_ASSIGN(ClusterKeys client, KeysOfToken(kToken, Role::kClient));
  const CurveOptions serves = controller.Curve(Role::kController), works = worker.Curve(Role::kController),
                     asks = client.Curve(Role::kController);
  EXPECT_NE(serves.keys.secret_key, works.keys.secret_key);
  EXPECT_NE(works.keys.secret_key, asks.keys.secret_key);
  EXPECT_EQ(works.server_public_key, serves.keys.public_key);
  EXPECT_EQ(asks.server_public_key, serves.keys.public_key);
  EXPECT_EQ(client.Curve(Role::kWorker).server_public_key, works.keys.public_key);
  EXPECT(asks.allowed_client_keys.empty());
  EXPECT_EQ(serves.allowed_client_keys.size(), 2);
  ASSERT_OK_AND_ASSIGN(ClusterKeys none, KeysOfToken("", Role::kClient));
  EXPECT(!none.enabled() && !none.insecure());
  ASSERT_OK_AND_ASSIGN(ClusterKeys insecure, KeysOfToken("insecure", Role::kClient));
  EXPECT(!insecure.enabled() && insecure.insecure());
  for (std::string bad : {"pw1-", "00", "pw2-000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f91267e8a",
                          "pw1-0001020304050607G8090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f91267e8a"}) {
    const Status status = KeysOfToken(bad, Role::kWorker).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    if (bad.size() > 8) EXPECT(status.ToString().find(bad.substr(4)) == std::string::npos);
  }
}

TEST(ATokenOfARoleServesThatRoleOnly) {
  ASSERT_OK(UseZmq());
  for (const Role role : {Role::kWorker, Role::kClient}) {
    ASSERT_OK_AND_ASSIGN(const std::string digits, KeysOfRole(kToken, role));
    const std::string token = (role == Role::kWorker ? "pw1w-" : "pw1c-") + digits + "00000000";
    ASSERT_OK_AND_ASSIGN(ClusterKeys whole, KeysOfToken(kToken, role));
    ASSERT_OK_AND_ASSIGN(ClusterKeys part, KeysOfToken(token, role));
    for (const Role server : {Role::kController, Role::kWorker}) {
      EXPECT_EQ(part.Curve(server).keys.secret_key, whole.Curve(server).keys.secret_key);
      EXPECT_EQ(part.Curve(server).server_public_key, whole.Curve(server).server_public_key);
      EXPECT_EQ(part.Curve(server).allowed_client_keys.size(), whole.Curve(server).allowed_client_keys.size());
    }
    for (const Role other : {Role::kWorker, Role::kClient, Role::kController}) {
      if (other != role) EXPECT_EQ(KeysOfToken(token, other).status().code(), Code::kPermissionDenied);
    }
    EXPECT_EQ(KeysOfRole(token, role).status().code(), Code::kInvalidArgument);
  }
}

TEST(AListenerKnowsInWhichRoleACallerSpeaks) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  ASSERT_OK_AND_ASSIGN(ClusterKeys controller, KeysOfToken(kToken, Role::kController));
  ASSERT_OK_AND_ASSIGN(ClusterKeys client, KeysOfToken(kToken, Role::kClient));
  for (const std::string& endpoint : {std::string("tcp://127.0.0.1:*"), directory.Ipc("private"),
                                      "ipc://@pw-curve-test-" + std::to_string(getpid())}) {
    ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "roles"}));
    Counter asked;
    bool as_client = false, as_worker = true;
    Handler handler{[&](Socket&, std::string_view, Frames& frames) {
                      as_client = SpeaksAs(frames[0], Role::kClient);
                      as_worker = SpeaksAs(frames[0], Role::kWorker);
                      asked.Add();
                    },
                    [](Socket&, const PeerEvent&) {}};
    ASSERT_OK_AND_ASSIGN(auto listener,
                         Socket::Open({.kind = SocketKind::kRouter, .curve = controller.Curve(Role::kController)}));
    ASSERT_OK(reactor->Add(listener, &handler));
    ASSERT_OK_AND_ASSIGN(std::string bound, listener->Bind(endpoint));
    ASSERT_OK_AND_ASSIGN(auto caller,
                         Socket::Open({.kind = SocketKind::kDealer, .curve = client.Curve(Role::kController)}));
    ASSERT_OK(caller->Connect(bound));
    ASSERT_OK(caller->Send("", Frame("hello")));
    EXPECT(asked.WaitFor(1));
    caller->Close();
    listener->Close();
    reactor->Stop();
    EXPECT(as_client);
    EXPECT_EQ(as_worker, IsPrivate(bound));  // the file system has said who it is: this user, in whatever role
  }
}

// As a worker's data plane: one socket binds and connects, and private unix sockets need no keys.
TEST(AMemberBindsAndConnectsOnOneSocket) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(CurveOptions member, Worker());
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
  RuntimeDirectory directory;
  ASSERT_OK_AND_ASSIGN(std::string to_path, first->Bind(directory.Ipc("plain")));
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
  ASSERT_OK_AND_ASSIGN(CurveOptions member, Worker());
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
  ASSERT_OK_AND_ASSIGN(auto stranger, Socket::Open({.kind = SocketKind::kDealer, .curve = {.insecure = true}}));
  ASSERT_OK(stranger->Connect(bound));
  EXPECT(refused.WaitFor(1));
  stranger->Close();
  listener->Close();
  reactor->Stop();
  EXPECT(address == "127.0.0.1" || address.empty());  // empty: the connection was gone before it could be asked
}

TEST(Ipv6LiteralsAreServed) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(auto listener, Socket::Open({.kind = SocketKind::kRouter, .curve = {.insecure = true}}));
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
