// Links to peers that are handed what came, over a socket that nobody is connected to: no second process, no thread, no
// wait.
#include "csrc/dataplane/peer_links.h"

#include <string>
#include <vector>

#include "csrc/dataplane/test_support.h"

namespace pathways::dataplane {
namespace {

using Kind = wire::Type;

struct Reached {
  explicit Reached(PeerLimits limits = {}, Membership membership = {testing::kCluster, "w/h", "", 0})
      : links({"machine", "", limits, [this](const std::string& peer) { to_hang_up.push_back(peer); }},
              testing::OpenRouter()) {
    links.Join(std::move(membership));
  }
  // As what came from `route`. Nothing: it was refused, or is of one that does not know that it is gone.
  std::optional<PeerLinks::Greeting> Hello(const std::string& route, const Link::Statement& of) {
    const wire::PeerHello hello{testing::kCluster, "", of.number, of.other, of.received, of.sent, uint8_t{of.anew}};
    auto greeting = links.OnHello(route, hello, transport::Frame());
    return greeting.ok() ? *greeting : std::nullopt;
  }
  // The sender, "-" where it is not to be handled, or the error.
  std::string Take(const std::string& route, uint64_t sequence, Kind type = Kind::kData) {
    wire::Header header{};
    header.type = type;
    header.sequence = sequence;
    const auto sender = links.Take(route, header);
    if (!sender.ok()) return sender.status().ToString();
    return *sender ? (*sender)->name : "-";
  }
  Status Transmit(const std::string& peer, size_t bytes, uint64_t key = 1) {
    return links.Transmit(peer, {0, key, testing::DataMessage(key, 0, std::string(bytes, 'x'))});
  }
  size_t kept(const std::string& peer) {
    std::lock_guard lock(links.mutex);
    const PeerLink* const link = links.Find(peer);
    return link == nullptr ? 0 : link->kept();
  }

  std::vector<std::string> to_hang_up;
  PeerLinks links;
};

TEST(NothingIsTakenBeforeAHelloAndThenEachMessageOnceInOrder) {
  Reached end;
  EXPECT_HAS(end.Take("c/7", 1), "expected PEER_HELLO as the first message");
  EXPECT_EQ(end.Transmit("c/7", 4).code(), Code::kNotFound);
  const auto greeting = end.Hello("c/7", {.number = 5});
  ASSERT(greeting.has_value());
  EXPECT(greeting->fresh && !greeting->forgotten && !greeting->same_machine);
  EXPECT_EQ(end.Take("c/7", 1), std::string("c/7"));
  EXPECT_EQ(end.Take("c/7", 1), std::string("-"));
  EXPECT_EQ(end.Take("c/7", 3), std::string("-"));  // the second one is missing
  EXPECT_EQ(end.Take("c/7", 2, Kind::kRelease), std::string("c/7"));
  EXPECT_EQ(end.Take("c/7", 3), std::string("c/7"));
  EXPECT_HAS(end.Take("c/7", 4, Kind::kPeerHello), "does not carry PEER_HELLO");
  EXPECT_EQ(end.Take("to/1/former", 1), std::string("-"));
  EXPECT(!end.Hello("c/7", {.number = 5})->fresh);
}

TEST(WhoReadsNothingIsNotHeardAndHungUpOnOnceInATick) {
  PeerLimits limits;
  limits.messages = 3;
  limits.client_bytes = 5000;
  Reached end(limits);
  (void)end.Hello("c/7", {.number = 5});
  (void)end.Hello("c/8", {.number = 6});
  for (int n = 0; n < 3; ++n) EXPECT_OK(end.Transmit("c/7", 2000));
  EXPECT(end.to_hang_up == std::vector<std::string>{"c/7"});
  EXPECT_EQ(end.links.unread_bytes("c/7"), 6000u);
  EXPECT_OK(end.Transmit("c/7", 2000));
  EXPECT_EQ(end.to_hang_up.size(), 1u);
  EXPECT_EQ(end.Take("c/7", 1), std::string("-"));
  EXPECT_EQ(end.Take("c/8", 1), std::string("c/8"));
  end.links.OnTick({});
  EXPECT_OK(end.Transmit("c/7", 2000));
  EXPECT_EQ(end.to_hang_up.size(), 2u);
}

TEST(WhoIsLostIsReachedByAnotherLinkOnly) {
  Reached end;
  (void)end.Hello("c/7", {.number = 5});
  EXPECT_OK(end.Transmit("c/7", 4));
  EXPECT(end.links.Lose("c/7", Unavailable("client 7 is gone"), 0));
  EXPECT_HAS(end.Transmit("c/7", 4).message(), "client 7 is gone");
  EXPECT(!end.Hello("c/7", {.number = 5}));
  EXPECT_HAS(end.Take("c/7", 1), "PEER_HELLO");
  EXPECT(end.Hello("c/7", {.number = 6})->fresh);
  EXPECT_EQ(end.kept("c/7"), 0u);
  EXPECT_OK(end.Transmit("c/7", 4));
  end.links.Stop();
  end.links.Clear();
  EXPECT_EQ(end.Transmit("c/7", 4).code(), Code::kCancelled);
}

TEST(ALaterSessionStaysWhenAFormerOneIsLost) {
  const wire::Identity host{"w/h", 9}, former{"w/a", 1}, later{"w/a", 3};
  const std::string key = wire::ListenerKey("secret", host);
  Reached end({}, {testing::kCluster, "", key, host.session});
  const std::string former_route = wire::IdentityText(key, former), later_route = wire::IdentityText(key, later);
  EXPECT(end.Hello(former_route, {.number = 5})->fresh);
  EXPECT(end.Hello(later_route, {.number = 6})->fresh);
  EXPECT_HAS(end.Take(former_route, 1), "PEER_HELLO");
  EXPECT(!end.links.Lose("w/a", Unavailable("host 'a' is lost"), former.session));
  EXPECT_EQ(end.Take(later_route, 1), std::string("w/a"));
  EXPECT(!end.Hello(former_route, {.number = 7}));
  EXPECT(end.links.Knows(later_route) && !end.links.Knows(former_route));
  EXPECT(end.links.Lose("w/a", Unavailable("host 'a' is lost"), later.session));
  EXPECT(!end.Hello(later_route, {.number = 8}));
}

}  // namespace
}  // namespace pathways::dataplane
