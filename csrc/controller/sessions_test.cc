// Sessions: the numbers and names that peers are given, and who may answer what.
#include "csrc/controller/test_support.h"
#include "csrc/wire/file_bodies.h"
#include "csrc/wire/identity.h"

namespace pathways::controller {
namespace {

using SomeCluster = ::pathways::controller::Cluster;  // other tests of this room have one of their own

wire::Welcome Join(SomeCluster& c, const Connection& connection) {
  wire::Hello hello;
  hello.role = wire::Role::kClient;
  hello.build = "0.1.0";
  hello.name = connection;
  const Outputs out = c.Tell(connection, hello);
  EXPECT(TypeOf(out.at(0)) == wire::Type::kWelcome);
  return Read<wire::Welcome>(out[0]);
}

TEST(ClientsNumbersAreGivenAgainAfterAllOthers) {
  SomeCluster c;
  c.AddHost("a");
  const wire::Welcome stays = Join(c, "stays");
  uint64_t session = stays.session;
  for (uint32_t i = 0; i < 2 * wire::kMaxClients; ++i) {
    const wire::Welcome welcome = Join(c, "passes");
    EXPECT(welcome.session > session);  // never given again
    session = welcome.session;
    EXPECT_NE(welcome.peer, stays.peer);
    EXPECT_EQ(welcome.peer, i % (wire::kMaxClients - 1) + 2);
    const Outputs gone = c.Tell("passes", wire::Goodbye{"bye"});
    EXPECT_EQ(Read<wire::OwnerGone>(gone.at(0)).session, session);
  }
}

TEST(IdsOfSessionsWithOneNumberLieApart) {
  EXPECT_EQ(wire::FirstIdOf(1), 1);
  EXPECT_EQ(wire::FirstIdOf(wire::kMaxClients + 1), (uint64_t{1} << 32) + 1);
  for (const uint64_t session : {uint64_t{1}, uint64_t{1} << 40, UINT64_MAX}) {
    EXPECT(wire::FirstIdOf(session) < uint64_t{0xffff} << 32);
  }
}

// A host that others can call.
Outputs JoinHost(SomeCluster& c, const std::string& name, const std::string& endpoint = "") {
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = "0.1.0";
  hello.name = name;
  hello.data_endpoint = endpoint.empty() ? "tcp://" + name + ":9" : endpoint;
  hello.devices.resize(1);
  return c.Tell("w-" + name, hello);
}

TEST(NamesOnDataConnectionsAreTheControllersToGive) {
  SomeCluster c;
  c.state.~ClusterState();
  new (&c.state) ClusterState(ClusterOptions{.cluster = "c", .build = "0.1.0", .data_secret = "secret"});
  const wire::Welcome a = Read<wire::Welcome>(JoinHost(c, "a").at(0)), client = Join(c, "x");
  EXPECT_EQ(a.data_key, wire::ListenerKey("secret", {"w/a", a.session}));
  EXPECT(a.identities.empty());  // there is nobody else
  EXPECT_EQ(client.data_key, "");
  const wire::Identity of_a{"w/a", a.session}, of_client{"c/" + std::to_string(client.peer), client.session};
  ASSERT_EQ(client.identities.size(), 1);
  EXPECT_EQ(client.identities[0].host, 0);
  EXPECT_EQ(client.identities[0].identity, wire::IdentityText(a.data_key, of_client));
  EXPECT_EQ(client.hosts.at(0).session, a.session);
  EXPECT_NE(a.session, client.session);
  // Of a host that joins each member gets its own name there, and it gets one at each of the others.
  const Outputs out = JoinHost(c, "b");
  const wire::Welcome b = Read<wire::Welcome>(out.at(0));
  EXPECT_NE(a.data_key, b.data_key);
  ASSERT_EQ(b.identities.size(), 1);
  EXPECT_EQ(b.identities[0].identity, wire::IdentityText(a.data_key, {"w/b", b.session}));
  std::map<Connection, wire::Topology> told;
  for (const Outgoing& message : out) {
    if (TypeOf(message) == wire::Type::kTopology) told[message.to] = Read<wire::Topology>(message);
  }
  ASSERT_EQ(told.size(), 2);
  for (const auto& [to, caller] : {std::pair("w-a", of_a), std::pair("x", of_client)}) {
    ASSERT_EQ(told.at(to).identities.size(), 1);
    EXPECT_EQ(told.at(to).identities[0].host, 1);
    EXPECT_EQ(told.at(to).identities[0].identity, wire::IdentityText(b.data_key, caller));
  }
  // Nobody is named at a host that is lost, nor named as it any more.
  c.state.OnDisconnected("w-a", "its process is gone", c.out);
  const wire::Welcome again = Read<wire::Welcome>(JoinHost(c, "a").at(0));
  EXPECT_NE(a.data_key, again.data_key);
  ASSERT_EQ(again.identities.size(), 1);
  EXPECT_EQ(again.identities[0].host, 1);
  EXPECT_NE(again.identities[0].identity, told.at("w-a").identities[0].identity);
  EXPECT(TypeOf(c.AddHost(std::string(wire::kMaxNameBytes + 1, 'n')).at(0)) == wire::Type::kReject);
}

TEST(AHostListensWhereNoOtherDoes) {
  SomeCluster c;
  JoinHost(c, "a", "tcp://there:9");
  const Outputs out = JoinHost(c, "b", "tcp://there:9");
  ASSERT_EQ(out.size(), 1);
  const wire::Reject refused = Read<wire::Reject>(out[0]);
  EXPECT(refused.status.code() == Code::kAlreadyExists);
  EXPECT_HAS(refused.status.message(), "data endpoint of its own");
  // One that names none, as a host of simulated devices, is in nobody's way, nor is one that is lost.
  EXPECT(TypeOf(c.AddHost("s").at(0)) == wire::Type::kWelcome);
  EXPECT(TypeOf(c.AddHost("t").at(0)) == wire::Type::kWelcome);
  c.state.OnDisconnected("w-a", "its process is gone", c.out);
  EXPECT(TypeOf(JoinHost(c, "b", "tcp://there:9").at(0)) == wire::Type::kWelcome);
}

TEST(HostsThatComeInARowAreToldOfWithNamesThere) {
  SomeCluster c;
  c.state.~ClusterState();
  ClusterOptions options{.cluster = "c", .build = "0.1.0", .data_secret = "secret"};
  options.expected_hosts = {"a", "b", "d"};
  new (&c.state) ClusterState(options);
  JoinHost(c, "a");
  const wire::Welcome client = Join(c, "x");
  EXPECT_EQ(client.identities.size(), 1);
  EXPECT_EQ(JoinHost(c, "b").size(), 1);  // its WELCOME: nobody else is told yet
  std::map<Connection, size_t> told;
  for (const Outgoing& message : JoinHost(c, "d")) {
    if (TypeOf(message) == wire::Type::kTopology) told[message.to] = Read<wire::Topology>(message).identities.size();
  }
  EXPECT_EQ(told["w-a"], 2);
  EXPECT_EQ(told["w-b"], 2);
  EXPECT_EQ(told["x"], 3);  // one of them again
  // A host of simulated devices is called by nobody.
  EXPECT(Read<wire::Welcome>(c.AddHost("s").at(0)).identities.size() == 3);
  EXPECT_EQ(Join(c, "y").identities.size(), 3);
}

TEST(WhatMembersCallThemselvesIsBoundedAndShowsInALog) {
  SomeCluster c;
  const std::string longest(wire::kMaxNameBytes, 'n');
  EXPECT(TypeOf(c.AddHost(longest).at(0)) == wire::Type::kWelcome);
  for (const std::string& name :
       {longest + "n", std::string(10 << 20, 'n'), std::string("\x1b[2J"), std::string("a\nb")}) {
    for (const bool worker : {true, false}) {
      wire::Hello hello;
      hello.role = worker ? wire::Role::kWorker : wire::Role::kClient;
      hello.build = "0.1.0";
      hello.name = name;
      hello.devices.resize(1);
      const Outputs out = c.Tell("x", hello);
      ASSERT(TypeOf(out.at(0)) == wire::Type::kReject);
      EXPECT_HAS(Read<wire::Reject>(out.at(0)).status.message(), "at most 128 bytes without control characters");
      EXPECT(out.at(0).head.size() < 1000);
    }
  }
  EXPECT(TypeOf(c.AddHost("b", 1, longest + "n").at(0)) == wire::Type::kReject);  // its island
}

TEST(WhoJoinsAndLeavesIsLogged) {
  SomeCluster c;
  c.state.ComesFrom("10.0.0.7");
  c.AddHost("a", 4);
  c.AddClient("train");
  c.state.OnDisconnected("train", "its process is gone", c.out);
  std::string log;
  for (const auto& [peer, line] : c.state.TakeLog()) log += line + "\n";
  EXPECT_HAS(log, "host 'a' (host 0, pid 0) has joined from 10.0.0.7: 4  devices from number 0 on, island 'a'\n");
  EXPECT_HAS(log, "client 'train' (client 1, pid 0) has joined from 10.0.0.7\n");
  EXPECT_HAS(log, "client 'train' (client 1, pid 0) is gone: its process is gone; its buffers");
}

TEST(AMessageHasAFewFrames) {
  SomeCluster c;
  const std::vector<Payload> many(wire::kMaxPayloads + 1, std::make_shared<const std::string>("x"));
  const Outputs out = c.Tell("x", wire::Hello{}, many);
  EXPECT_HAS(Read<wire::Reject>(out.at(0)).status.message(), "at most 4 frames behind a message's head, got 5");
}

TEST(AnswersSayWhichHostGaveThem) {
  SomeCluster c;
  c.AddHost("a");
  c.AddHost("b");
  const uint32_t client = c.AddClient("x");
  for (const auto& [name, number] : {std::pair("a", 0u), std::pair("b", 1u)}) {
    const std::string host = std::string("w-") + name;
    for (const Outputs& out : {c.Tell(host, wire::Fetched{SomeCluster::Id(client, 9), OkStatus(), 0, {}}),
                               c.Tell(host, wire::Stored{SomeCluster::Id(client, 9), 0, OkStatus(), 0, 0, 0}),
                               c.Tell(host, wire::Reply{SomeCluster::Id(client, 9), OkStatus(), {}, {}})}) {
      EXPECT_EQ(SequenceOf(out.at(0)), number + 1);  // whatever the host wrote there itself
    }
  }
  c.Register("x", client, 1, std::vector<uint32_t>{0, 1});
  wire::Registered forged;
  forged.function = SomeCluster::Id(client, 1);
  forged.host = 0;
  EXPECT(c.Tell("w-b", forged).empty());
  EXPECT_EQ(c.Registered("a", client, 1).size(), 1);
}

}  // namespace
}  // namespace pathways::controller
