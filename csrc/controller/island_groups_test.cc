// Hosts that make one client of their plugins together: who takes part, and what their plugins tell each other.
#include "csrc/controller/island_groups.h"

#include "csrc/controller/test_support.h"

namespace pathways::controller {
namespace {

using wire::Type;

struct Groups {
  IslandGroups groups{{}};
  uint64_t now = 1000;

  static wire::IslandJoin Asking(const std::string& name, uint32_t hosts) {
    return {"0.1.0", name, 1, "pod", hosts, "cuda", "v1", 5000};
  }
  IslandGroups::Answers Join(const wire::IslandJoin& join) {
    IslandGroups::Answers out;
    groups.Join("c-" + join.name, join, now, out);
    return out;
  }
  IslandGroups::Answers Join(const std::string& name, uint32_t hosts) { return Join(Asking(name, hosts)); }
  IslandGroups::Answers Ask(const std::string& name, wire::KeyValueKind kind, const std::string& key,
                            const std::string& value = "", uint64_t timeout_ms = 2000) {
    IslandGroups::Answers out;
    groups.Request("c-" + name, {++requests, kind, key, value, timeout_ms}, now, out);
    return out;
  }
  IslandGroups::Answers Put(const std::string& name, const std::string& key, const std::string& value) {
    return Ask(name, wire::KeyValueKind::kPut, key, value);
  }
  IslandGroups::Answers Get(const std::string& name, const std::string& key) {
    return Ask(name, wire::KeyValueKind::kGet, key);
  }
  IslandGroups::Answers Tick(uint64_t at) {
    IslandGroups::Answers out;
    groups.Tick(now = at, out);
    return out;
  }
  IslandGroups::Answers Leave(const std::string& name) {
    IslandGroups::Answers out;
    groups.OnDisconnected("c-" + name, "killed", out);
    return out;
  }
  uint64_t requests = 0;
};

TEST(HostsAreNumberedByNameWhenAllAreThere) {
  Groups g;
  EXPECT_EQ(g.Join("host10", 3).size(), 0u);
  EXPECT_EQ(g.Join("host9", 3).size(), 0u);
  const auto out = g.Join("host1", 3);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].to, "c-host1");
  EXPECT_EQ(out[1].to, "c-host9");
  EXPECT_EQ(out[2].to, "c-host10");
  for (uint32_t node = 0; node < 3; ++node) {
    EXPECT_OK(out[node].body.status);
    EXPECT_EQ(out[node].body.node, node);
  }
}

TEST(ExpectedHostsAreNumberedInTheClustersOrder) {
  Groups g{IslandGroups({"b", "a"})};
  g.Join("z", 3);
  g.Join("a", 3);
  const auto out = g.Join("b", 3);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].to + out[1].to + out[2].to, "c-bc-ac-z");
}

TEST(AHostThatNeverComesIsNamedAfterTheStatedTime) {
  Groups g{IslandGroups({"a", "b", "c"})};
  g.Join("a", 3);
  g.now += 100;
  g.Join("b", 3);
  EXPECT_EQ(g.Tick(5999).size(), 0u);
  const auto out = g.Tick(6000);
  ASSERT_EQ(out.size(), 2u);
  for (const auto& answer : out) {
    EXPECT(answer.body.status.code() == Code::kDeadlineExceeded);
    EXPECT_HAS(answer.body.status.message(), "3 hosts of island 'pod' within 5 s, got 2: 'a', 'b'");
    EXPECT_HAS(answer.body.status.message(), "did not come: 'c'");
  }
  EXPECT_EQ(g.groups.size(), 0u);
  EXPECT(!g.groups.knows("c-a"));
}

TEST(HostsThatDifferAreRefusedAndBothAreNamed) {
  Groups g;
  g.Join("a", 2);
  auto refused = [&](const wire::IslandJoin& join) {
    const auto out = g.Join(join);
    return out.size() == 1 ? out[0].body.status.ToString() : std::string("not one answer");
  };
  wire::IslandJoin other = Groups::Asking("b", 2);
  other.plugin = "v2";
  EXPECT_HAS(refused(other), "expected the plugin v1 as on host 'a' of island 'pod', got v2 on host 'b'");
  other = Groups::Asking("b", 2);
  other.platform = "tpu";
  EXPECT_HAS(refused(other), "expected platform cuda as on host 'a' of island 'pod', got tpu on host 'b'");
  EXPECT_HAS(refused(Groups::Asking("b", 3)), "expected --island-hosts 2 as on host 'a' of island 'pod', got 3");
  IslandGroups::Answers twice;
  g.groups.Join("c-again", Groups::Asking("a", 2), g.now, twice);
  EXPECT_HAS(twice.at(0).body.status.ToString(), "a host named 'a' is already in island 'pod'");
  EXPECT_HAS(refused(Groups::Asking("", 2)), "INVALID_ARGUMENT");
  EXPECT_HAS(refused(Groups::Asking("b", 0)), "1 to 4096 hosts, got 0");
  // Those who wait learn why the others were turned away.
  EXPECT_HAS(g.Tick(10000).at(0).body.status.message(), "got v2 on host 'b'");
}

TEST(ACompleteIslandTakesNobodyElse) {
  Groups g;
  g.Join("a", 2);
  g.Join("b", 2);
  const auto out = g.Join("c", 2);
  ASSERT_EQ(out.size(), 1u);
  EXPECT(out[0].body.status.code() == Code::kAlreadyExists);
  EXPECT_HAS(out[0].body.status.message(), "complete with its 2 hosts ('a', 'b')");
}

TEST(AKeyIsThereForAllWhoAskedBeforeAndAfter) {
  Groups g;
  g.Join("a", 3);
  EXPECT(g.Put("a", "k", "v").at(0).body.status.code() == Code::kFailedPrecondition);  // not all are there
  g.Join("b", 3);
  g.Join("c", 3);
  EXPECT(g.Ask("a", wire::KeyValueKind::kTryGet, "k").at(0).body.status.code() == Code::kNotFound);
  EXPECT_EQ(g.Get("b", "k").size(), 0u);
  EXPECT_EQ(g.Get("c", "k").size(), 0u);
  EXPECT_EQ(g.Get("c", "other").size(), 0u);
  const auto out = g.Put("a", "k", std::string("v\0v", 3));
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].to + out[1].to + out[2].to, "c-bc-cc-a");
  for (const auto& answer : out) EXPECT_OK(answer.body.status);
  EXPECT_EQ(out[0].body.value, std::string("v\0v", 3));
  EXPECT_EQ(g.Get("a", "k").at(0).body.value, std::string("v\0v", 3));
  EXPECT_EQ(g.Ask("a", wire::KeyValueKind::kTryGet, "k").at(0).body.value, std::string("v\0v", 3));
  EXPECT_OK(g.Put("b", "k", std::string("v\0v", 3)).at(0).body.status);
  EXPECT(g.Put("b", "k", "w").at(0).body.status.code() == Code::kAlreadyExists);
}

TEST(AGetIsAnsweredWhenItsTimeIsUp) {
  Groups g;
  g.Join("a", 1);
  EXPECT_EQ(g.Get("a", "k").size(), 0u);
  EXPECT_EQ(g.Tick(2999).size(), 0u);
  const auto out = g.Tick(3000);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].body.request, 1u);
  EXPECT(out[0].body.status.code() == Code::kDeadlineExceeded);
  EXPECT_HAS(out[0].body.status.message(), "to put key 'k' within 2 s");
  EXPECT_EQ(g.Put("a", "k", "v").size(), 1u);  // nobody waits any more
}

TEST(ALostHostEndsTheIslandForAllAndTheNextStartSeesNoOldKey) {
  Groups g;
  g.Join("a", 2);
  g.Join("b", 2);
  g.Put("a", "k", "v");
  EXPECT_EQ(g.Get("a", "never").size(), 0u);
  const auto out = g.Leave("b");
  ASSERT_EQ(out.size(), 2u);  // the get, and the news
  for (const auto& answer : out) {
    EXPECT_EQ(answer.to, "c-a");
    EXPECT(answer.body.status.code() == Code::kUnavailable);
    EXPECT_HAS(answer.body.status.message(), "island 'pod' lost host 'b': killed");
  }
  EXPECT_EQ(out[1].body.request, 0u);
  EXPECT_HAS(g.Get("a", "k").at(0).body.status.message(), "lost host 'b'");
  EXPECT_EQ(g.Join("b", 2).size(), 0u);
  EXPECT_EQ(g.Leave("a").size(), 0u);
  EXPECT_EQ(g.Join("a", 2).size(), 2u);
  EXPECT(g.Ask("a", wire::KeyValueKind::kTryGet, "k").at(0).body.status.code() == Code::kNotFound);
  g.Leave("a");
  g.Leave("b");
  EXPECT_EQ(g.groups.size(), 0u);
}

TEST(AHostThatFellSilentIsLostToItsIsland) {
  Groups g;
  g.Join("a", 2);
  g.Join("b", 2);
  IslandGroups::Answers out;
  g.groups.OnHostLost("b", "silent", out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_HAS(out[0].body.status.message(), "lost host 'b': silent");
  EXPECT(!g.groups.knows("c-b"));
}

TEST(WhileItFormsAHostMayGoAndComeAgain) {
  Groups g;
  g.Join("a", 2);
  EXPECT_EQ(g.Leave("a").size(), 0u);
  EXPECT_EQ(g.groups.size(), 0u);
  g.Join("b", 2);
  EXPECT_EQ(g.Join("a", 2).size(), 2u);
}

TEST(WhatAPluginPutsIsBounded) {
  Groups g;
  g.Join("a", 1);
  EXPECT(g.Put("a", "", "v").at(0).body.status.code() == Code::kInvalidArgument);
  EXPECT(g.Put("a", std::string(IslandGroups::kMaxKeyBytes + 1, 'k'), "v").at(0).body.status.code() ==
         Code::kInvalidArgument);
  EXPECT(g.Put("a", "k", std::string(IslandGroups::kMaxValueBytes + 1, 'v')).at(0).body.status.code() ==
         Code::kInvalidArgument);
  const std::string large(IslandGroups::kMaxValueBytes - 16, 'v');
  for (size_t i = 0; i < IslandGroups::kMaxBytes / IslandGroups::kMaxValueBytes; ++i) {
    EXPECT_OK(g.Put("a", "k" + std::to_string(i), large).at(0).body.status);
  }
  EXPECT(g.Put("a", "more", large).at(0).body.status.code() == Code::kResourceExhausted);
  for (size_t i = 0; i < IslandGroups::kMaxWaitersPerHost; ++i) EXPECT_EQ(g.Get("a", "absent").size(), 0u);
  EXPECT(g.Get("a", "absent").at(0).body.status.code() == Code::kResourceExhausted);
  g.Tick(100000);
  EXPECT_EQ(g.Get("a", "absent").size(), 0u);
}

// --- as part of the cluster's state

wire::IslandJoin JoinOf(const std::string& name) { return {"0.1.0", name, 1, "pod", 2, "cuda", "v1", 5000}; }

TEST(TheControllerServesIslandsBeforeTheirHostsJoin) {
  Cluster c;
  wire::IslandJoin old = JoinOf("a");
  old.build = "0.0.9";
  EXPECT(TypeOf(c.Tell("i-a", old).at(0)) == Type::kReject);
  EXPECT(TypeOf(c.Tell("i-a", wire::KeyValue{1, wire::KeyValueKind::kPut, "k", "v", 0}).at(0)) == Type::kIslandAnswer);
  EXPECT_EQ(c.Tell("i-a", JoinOf("a")).size(), 0u);
  EXPECT_EQ(c.Tell("i-b", JoinOf("b")).size(), 2u);
  EXPECT_EQ(c.state.live_host_count(), 0u);
  c.AddHost("a", 1, "pod");
  EXPECT_HAS(Read<wire::Reject>(c.AddHost("b", 1, "pod").at(0)).status.message(),
             "got 0 on hosts 'a' and 'b': its plugin does not make one client of several hosts");
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = "0.1.0";
  hello.name = "b";
  hello.island = "pod";
  hello.devices = {{0, "gpu", 0, 1}};
  EXPECT(TypeOf(c.Tell("w-b", hello).at(0)) == Type::kWelcome);
  EXPECT_EQ(c.state.Farewell("bye").size(), 4u);
  EXPECT(TypeOf(c.Tell("w-a", JoinOf("a")).at(0)) == Type::kReject);
  // A host that the controller gives up is lost to the plugins of the others, too.
  Outputs out;
  c.state.OnDisconnected("w-b", "killed", out);
  bool told = false;
  for (const Outgoing& outgoing : out) {
    if (outgoing.to == "i-a") told = !Read<wire::IslandAnswer>(outgoing).status.ok();
  }
  EXPECT(told);
  EXPECT_EQ(c.state.live_host_count(), 0u);  // nor can the others go on
}

TEST(HostsOfAnIslandHaveOnePlugin) {
  Cluster c;
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = "0.1.0";
  hello.island = "pod";
  hello.platform = "cpu";
  hello.devices.resize(1);
  hello.name = "a";
  hello.platform_version = "v1";
  c.Tell("w-a", hello);
  hello.name = "b";
  hello.platform_version = "v2";
  const Outputs out = c.Tell("w-b", hello);
  ASSERT(TypeOf(out.at(0)) == Type::kReject);
  EXPECT_HAS(Read<wire::Reject>(out[0]).status.message(), "expected the cpu plugin 'v1' as on host 'a'");
  EXPECT_HAS(Read<wire::Reject>(out[0]).status.message(), "got 'v2' on host 'b'");
  hello.island = "other";
  EXPECT(TypeOf(c.Tell("w-b", hello).at(0)) == Type::kWelcome);
}

}  // namespace
}  // namespace pathways::controller
