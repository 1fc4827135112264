// What a socket's users are told of connections, of what libzmq's monitor says. No sockets.
#include "csrc/transport/peers.h"

#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::transport {
namespace {

constexpr const char* kHere = "tcp://127.0.0.1:7";
constexpr const char* kThere = "ipc:///run/x";

// As text: what happened to whom.
std::string Told(Peers& peers) {
  std::vector<PeerEvent> events;
  peers.TakeEvents(&events);
  std::string text;
  for (const PeerEvent& event : events) {
    const char* const what = event.kind == PeerEventKind::kConnected      ? "connected"
                             : event.kind == PeerEventKind::kDisconnected ? "disconnected"
                                                                          : "failed";
    text += (text.empty() ? "" : ", ") + std::string(what) + (event.identity.empty() ? "" : " " + event.identity);
  }
  return text;
}

void Arrive(Peers& peers, int fd, const char* endpoint, const std::string& identity) {
  peers.Add(zmq::kEventAccepted, fd, endpoint);
  peers.Add(zmq::kEventHandshakeSucceeded, 0, endpoint);
  if (!identity.empty()) peers.Learn(identity, fd);
}

TEST(ConnectionsEndWithTheListenerThatTookThem) {
  Peers peers({});
  Arrive(peers, 3, kHere, "a");
  Arrive(peers, 4, kThere, "b");
  Arrive(peers, 5, kHere, "");  // has said nothing yet
  EXPECT_EQ(Told(peers), "connected, connected, connected");
  peers.Add(zmq::kEventClosed, 9, "tcp://127.0.0.1:8");  // somebody else's, such as an attempt to connect
  EXPECT_EQ(Told(peers), "");
  peers.Add(zmq::kEventClosed, 9, kHere);
  const std::string ended = Told(peers);
  EXPECT(ended == "disconnected a, disconnected" || ended == "disconnected, disconnected a");
  EXPECT(!peers.Knows("a"));
  EXPECT(peers.Knows("b"));

  Arrive(peers, 3, kHere, "a again");  // the descriptor and the endpoint are used again
  EXPECT_EQ(Told(peers), "connected");
  peers.Add(zmq::kEventDisconnected, 4, kThere);
  EXPECT_EQ(Told(peers), "disconnected b");
  EXPECT(peers.Knows("a again"));
}

TEST(AnEndIsToldOnce) {
  Peers peers({});
  Arrive(peers, 3, kHere, "a");
  peers.Add(zmq::kEventDisconnected, 3, kHere);
  EXPECT_EQ(Told(peers), "connected, disconnected a");
  peers.Add(zmq::kEventClosed, 9, kHere);
  EXPECT_EQ(Told(peers), "");
  EXPECT(!peers.HasEvents());
}

TEST(WhoCameAndWentBeforeItsMessageWasReadIsToldOf) {
  Peers peers({});
  peers.Add(zmq::kEventAccepted, 3, kHere);
  peers.Add(zmq::kEventHandshakeSucceeded, 0, kHere);
  peers.Add(zmq::kEventDisconnected, 3, kHere);
  (void)Told(peers);
  peers.Learn("a", 3);
  EXPECT_EQ(Told(peers), "disconnected a");
}

TEST(AHandshakeThatFailsIsToldWithTheEndOfItsConnection) {
  Peers peers({});
  peers.Add(zmq::kEventAccepted, 3, kHere);
  peers.Add(zmq::kEventHandshakeFailedAuth, 400, kHere);
  EXPECT_EQ(Told(peers), "");
  peers.Add(zmq::kEventDisconnected, 3, kHere);
  EXPECT_EQ(Told(peers), "failed, disconnected");
}

}  // namespace
}  // namespace pathways::transport
