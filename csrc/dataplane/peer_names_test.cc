// Who may be called what: without a socket.
#include "csrc/dataplane/peer_names.h"

#include "csrc/testing/test.h"

namespace pathways::dataplane {
namespace {

using transport::Frame;

TEST(ACallerIsWhoTheListenersKeySaysAndNobodyCallsAClient) {
  const std::string key = wire::ListenerKey("secret", {"w/b", 2}), other = wire::ListenerKey("secret", {"w/c", 3});
  const Membership host{"cluster", "", key, 2}, client{"cluster", "", "", 7};
  const std::string route = wire::IdentityText(key, {"w/a", 1});
  ASSERT_OK_AND_ASSIGN(const wire::Identity caller, CallerOf(host, route, Frame()));
  EXPECT_EQ(caller.name, std::string("w/a"));
  EXPECT_EQ(caller.session, 1u);
  EXPECT_EQ(CallerOf(host, wire::IdentityText(other, {"w/a", 1}), Frame()).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(CallerOf(host, wire::IdentityText(key, {"to/a", 1}), Frame()).status().code(), Code::kPermissionDenied);
  EXPECT_HAS(CallerOf(client, route, Frame()).status().message(), "nobody calls a client");
}

TEST(InAGroupNamesAreBelievedIfTheyAreOfARole) {
  const Membership group{"group", "w/a", "", 0};
  EXPECT_EQ(CallerOf(group, "c/3", Frame())->name, std::string("c/3"));
  EXPECT_EQ(CallerOf(group, "w/b", Frame())->name, std::string("w/b"));
  EXPECT_EQ(CallerOf(group, "to/b", Frame()).status().code(), Code::kPermissionDenied);
}

TEST(ANameBelongsToLaterSessionsOnly) {
  PeerNames names;
  EXPECT_OK(names.Enter({"w/a", 4}));
  EXPECT_OK(names.Enter({"w/a", 4}));  // it calls again
  EXPECT_EQ(names.Enter({"w/a", 3}).code(), Code::kFailedPrecondition);
  names.EndSession("w/a", 4);
  EXPECT_EQ(names.Enter({"w/a", 4}).code(), Code::kFailedPrecondition);
  names.EndSession("w/a", 2);  // the news comes late
  EXPECT_OK(names.Enter({"w/a", 5}));
  EXPECT_OK(names.Enter({"w/b", 1}));
}

TEST(WhoIsGoneReturnsByAnotherLinkOnly) {
  PeerNames names;
  names.Leave("c/1", Unavailable("client 1 is gone"), 5);
  EXPECT_HAS(names.Gone("c/1").message(), "client 1 is gone");
  EXPECT(!names.Return("c/1", 5));  // it does not know yet
  EXPECT(!names.Gone("c/1").ok());
  EXPECT(names.Return("c/1", 6));
  EXPECT_OK(names.Gone("c/1"));
  EXPECT(names.Return("c/2", 6));
}

TEST(RoutesOfConnectionsMadeHereAreNeverTheSame) {
  PeerNames names;
  const std::string first = names.NewRoute(), second = names.NewRoute();
  EXPECT(first != second && first.substr(5) != second.substr(5));
  EXPECT(PeerNames::IsOurs(first) && !PeerNames::IsOurs("c/1"));
  names.Add(first, PeerNames::OfHost("h"));
  ASSERT(names.Find(first) != nullptr);
  EXPECT_EQ(*names.Find(first), std::string("to/h"));
  names.Remove(first);
  EXPECT(names.Find(first) == nullptr);
}

}  // namespace
}  // namespace pathways::dataplane
