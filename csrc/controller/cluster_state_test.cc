// The controller's decisions, driven without sockets, threads or clocks.
#include "csrc/controller/test_support.h"

namespace pathways::controller {
namespace {

using wire::Type;

TEST(OtherBuildsAreRefusedWithBothVersions) {
  Cluster c;
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = "0.0.9";
  hello.name = "old";
  hello.devices.resize(1);
  Outputs out = c.Tell("x", hello);
  ASSERT_EQ(out.size(), 1u);
  EXPECT(TypeOf(out[0]) == Type::kReject);
  const std::string message(Read<wire::Reject>(out[0]).status.message());
  EXPECT(message.find("0.1.0") != std::string::npos && message.find("0.0.9") != std::string::npos);
  EXPECT_EQ(c.state.live_host_count(), 0u);
}

TEST(HostsOfAnIslandAreAlike) {
  Cluster c;
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = "0.1.0";
  hello.platform = "cpu";
  hello.platform_version = "7";
  hello.devices.resize(2);
  auto join = [&](const std::string& name, const std::string& island) {
    hello.name = name;
    hello.island = island;
    Outputs out = c.Tell("w-" + name, hello);
    return TypeOf(out.at(0)) == Type::kReject ? std::string(Read<wire::Reject>(out[0]).status.message()) : "";
  };
  EXPECT_EQ(join("a", "pod"), "");
  EXPECT_EQ(join("b", "pod"), "");
  hello.devices.resize(3);
  EXPECT_EQ(join("c", "pod"), "");  // hosts may have different numbers of devices
  EXPECT_EQ(join("d", ""), "");
  hello.devices.resize(2);
  hello.platform_version = "8";
  EXPECT(join("e", "pod").find("cpu plugin '7'") != std::string::npos);
  hello.platform = "cuda";
  EXPECT(join("f", "pod").find("platform") != std::string::npos);
  EXPECT_EQ(c.state.live_host_count(), 4u);
  // An island is what its living members are.
  c.state.OnDisconnected("w-a", "gone", c.out);
  c.state.OnDisconnected("w-b", "gone", c.out);
  c.state.OnDisconnected("w-c", "gone", c.out);
  EXPECT_EQ(join("g", "pod"), "");
}

TEST(StrangersAndGarbageChangeNothing) {
  Cluster c;
  Outputs out;
  c.state.OnMessage("x", "garbage", {}, 0, out);
  EXPECT(TypeOf(out.at(0)) == Type::kReject);
  EXPECT(TypeOf(c.Tell("x", wire::Heartbeat{}).at(0)) == Type::kReject);
  EXPECT_EQ(c.state.live_host_count(), 0u);
}

TEST(RunsGetOneOrderOverAllIslands) {
  Cluster c;
  c.AddHost("h0");
  c.AddHost("h1");
  const uint32_t a = c.AddClient("a"), b = c.AddClient("b");
  c.Register("a", a, 1, 0);
  c.Registered("h0", a, 1);
  c.Register("b", b, 1, 0);
  c.Registered("h0", b, 1);
  c.Register("b", b, 2, 1);
  c.Registered("h1", b, 2);
  EXPECT_EQ(SequenceOf(c.Run("a", a, 10, 1).at(0)), 1u);
  EXPECT_EQ(SequenceOf(c.Run("b", b, 10, 1).at(0)), 2u);
  EXPECT_EQ(SequenceOf(c.Run("a", a, 20, 1).at(0)), 3u);
  EXPECT_EQ(SequenceOf(c.Run("b", b, 20, 2, {1}).at(0)), 4u);  // another island
}

TEST(AComputationSpansIslandsOnlyWhereItsCollectivesReach) {
  Cluster c;
  const auto host = [&c](const std::string& name, const std::string& platform) {
    wire::Hello hello;
    hello.role = wire::Role::kWorker;
    hello.build = "0.1.0";
    hello.name = name;
    hello.island = "of " + name;
    hello.platform = platform;
    hello.devices.resize(1);
    c.Tell("w-" + name, hello);
  };
  for (const char* const name : {"c0", "c1"}) host(name, "cpu");
  for (const char* const name : {"g0", "g1"}) host(name, "cuda");
  const uint32_t a = c.AddClient("a");
  const auto refused = [&](uint64_t n, std::vector<uint32_t> devices) {
    for (const Outgoing& outgoing : c.Register("a", a, n, std::move(devices))) {
      if (TypeOf(outgoing) == Type::kRegistered) {
        return std::string(Read<wire::Registered>(outgoing).status.message());
      }
    }
    return std::string();
  };
  EXPECT_EQ(refused(1, {0, 1}), "");
  EXPECT_HAS(refused(2, {2, 3}), "'g0' (cuda) and 'g1' (cuda) needs them in one island");
  EXPECT_HAS(refused(3, {1, 2}), "'c1' (cpu) and 'g0' (cuda)");
}

TEST(NothingOvertakesARunThatWaitsForItsCompile) {
  Cluster c;
  c.AddHost("h0");
  const uint32_t a = c.AddClient("a"), b = c.AddClient("b");
  EXPECT_EQ(c.Register("a", a, 1, 0).at(0).payloads.size(), 2u);
  EXPECT_EQ(c.Run("a", a, 10, 1).size(), 0u);
  EXPECT_EQ(c.Tell("a", wire::Free{0, {Cluster::Id(a, 11)}}).size(), 0u);
  // Compiles go ahead, and so do other clients.
  EXPECT_EQ(c.Register("a", a, 2, 0).size(), 1u);
  EXPECT_EQ(c.Tell("b", wire::Free{0, {Cluster::Id(b, 1)}}).size(), 1u);
  Outputs out = c.Registered("h0", a, 1);
  ASSERT_EQ(out.size(), 3u);
  EXPECT(TypeOf(out[0]) == Type::kRegistered && out[0].to == "a");
  EXPECT(TypeOf(out[1]) == Type::kRun && out[1].to == "w-h0");
  EXPECT(TypeOf(out[2]) == Type::kFree && out[2].to == "w-h0");
}

TEST(AClientThatSubmitsWithoutEndBehindWhatWaitsIsEndedAndNobodyElse) {
  Cluster c;
  c.AddHost("h0");
  const uint32_t a = c.AddClient("a"), b = c.AddClient("b");
  c.Register("a", a, 1, 0);
  EXPECT_EQ(c.Run("a", a, 10, 1).size(), 0u);  // waits for the compile
  wire::Put put{0, 0, 0, 1, 0, {DType::kU8, {4096}}, std::string(4096, 'x')};
  Outputs last;
  uint64_t sent = 0;
  for (; last.empty() && sent < 2 * ClientStream::kMaxBytes; sent += 4096) {
    put.buffer = put.key = Cluster::Id(a, 100 + sent);
    last = c.Tell("a", put);
  }
  EXPECT(sent < ClientStream::kMaxBytes);
  ASSERT(last.size() >= 2);
  EXPECT(last[0].to == "a" && TypeOf(last[0]) == Type::kReject);
  EXPECT_HAS(Read<wire::Reject>(last[0]).status.message(), "256 MiB of messages behind one that waits");
  EXPECT(last[1].to == "w-h0" && TypeOf(last[1]) == Type::kOwnerGone);
  EXPECT(!c.state.Knows("a") && c.state.Knows("b"));
  put.buffer = put.key = Cluster::Id(b, 1);
  EXPECT(c.Tell("b", put).at(0).to == "w-h0");
}

TEST(ALostHostFailsWhatDependsOnItAndNamesIt) {
  Cluster c;
  c.AddHost("h0");
  c.AddHost("h1");
  const uint32_t a = c.AddClient("a");
  c.Register("a", a, 1, 1);
  EXPECT_EQ(c.Run("a", a, 10, 1, {1}).size(), 0u);  // waits for the compile
  c.out.clear();
  c.state.OnDisconnected("w-h1", "killed", c.out);
  bool lost = false, failed_compile = false, failed_run = false;
  for (const Outgoing& outgoing : c.out) {
    if (outgoing.to != "a") continue;
    if (TypeOf(outgoing) == Type::kHostLost)
      lost = Read<wire::HostLost>(outgoing).reason.find("'h1'") != std::string::npos;
    if (TypeOf(outgoing) == Type::kRegistered) failed_compile = !Read<wire::Registered>(outgoing).status.ok();
    if (TypeOf(outgoing) == Type::kDone) failed_run = !Read<wire::Done>(outgoing).outcomes.at(0).status.ok();
  }
  EXPECT(lost && failed_compile && failed_run);
  EXPECT_EQ(c.state.live_host_count(), 1u);
  // Later work for it fails at once.
  Outputs out = c.Tell("a", wire::Put{Cluster::Id(a, 50), Cluster::Id(a, 50), 0, 1, 1, {DType::kF32, {}}, "abcd"});
  EXPECT(TypeOf(out.at(0)) == Type::kBufferFailed);
}

TEST(ExpectedHostsAreNumberedAsExpected) {
  Cluster c{ClusterState{ClusterOptions{.cluster = "c", .build = "0.1.0", .expected_hosts = {"h0", "h1", "h2"}}}, {}};
  EXPECT_EQ(c.AddHost("h2").size(), 0u);
  EXPECT_EQ(c.AddHost("h1").size(), 0u);
  EXPECT_EQ(c.state.live_host_count(), 0u);
  c.AddHost("h0");
  const auto hosts = c.state.HostDescriptions();
  ASSERT_EQ(hosts.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(hosts[i].name, "h" + std::to_string(i));
  c.AddHost("late");
  EXPECT_EQ(c.state.live_host_count(), 4u);
}

TEST(AnExpectedHostThatGivesUpIsForgotten) {
  Cluster c{ClusterState{ClusterOptions{.cluster = "c", .build = "0.1.0", .expected_hosts = {"h0", "h1"}}}, {}};
  c.AddHost("h1");
  c.out.clear();
  c.state.OnDisconnected("w-h1", "killed", c.out);
  c.AddHost("h0");
  EXPECT_EQ(c.state.live_host_count(), 1u);
}

TEST(SilenceIsToldOfAndTheLeaseDecides) {
  Cluster c;
  c.AddHost("h0");
  c.AddClient("a");
  const auto told = [&](uint64_t from, uint64_t to) {  // what the client hears of the host while these times pass
    std::vector<int> states;
    for (uint64_t t = from; t <= to; t += 500) {
      c.now = t;
      c.Tell("a", wire::Heartbeat{});
      Outputs out;
      c.state.OnTick(t, out);
      for (const Outgoing& outgoing : out) {
        if (outgoing.to != "a" || TypeOf(outgoing) != Type::kTopology) continue;
        states.push_back(Read<wire::Topology>(outgoing).hosts.at(0).alive);
      }
    }
    return states;
  };
  EXPECT(told(1000, 4000).empty());
  EXPECT_EQ(told(4500, 8000), std::vector<int>{wire::kHostSilent});
  c.now = 8400;
  c.Tell("w-h0", wire::Heartbeat{});
  EXPECT_EQ(told(8500, 9000), std::vector<int>{wire::kHostAlive});
  EXPECT_EQ(told(9500, 68000), std::vector<int>{wire::kHostSilent});
  EXPECT_EQ(c.state.live_host_count(), 1u);
  told(68500, 69000);
  EXPECT_EQ(c.state.live_host_count(), 0u);
}

TEST(AControllerThatWasStoppedBlamesNobody) {
  Cluster suspended;
  suspended.AddHost("h0");
  Outputs out;
  suspended.state.OnTick(1000, out);
  suspended.state.OnTick(600000, out);
  EXPECT_EQ(suspended.state.live_host_count(), 1u);
}

TEST(AClientThatIsGoneIsCollectedEverywhere) {
  Cluster c;
  c.AddHost("h0");
  const uint32_t a = c.AddClient("a");
  c.out.clear();
  c.state.OnDisconnected("a", "killed", c.out);
  ASSERT_EQ(c.out.size(), 1u);
  EXPECT_EQ(Read<wire::OwnerGone>(c.out[0]).client, a);
}

TEST(OneClientCannotTouchAnothersBuffers) {
  Cluster c;
  c.AddHost("h0");
  c.AddClient("a");
  const uint32_t b = c.AddClient("b");
  Outputs out = c.Tell("a", wire::Free{0, {Cluster::Id(b, 1)}});
  ASSERT_EQ(out.size(), 1u);
  EXPECT(TypeOf(out[0]) == Type::kReject);
  EXPECT_EQ(Read<wire::Reject>(out[0]).status.code(), Code::kPermissionDenied);
}

TEST(ARunOfAnothersBuffersOrOfTooManyOutputsIsRefused) {
  Cluster c;
  c.AddHost("h0");
  const uint32_t a = c.AddClient("a");
  const uint32_t b = c.AddClient("b");
  wire::Run run;
  run.run = Cluster::Id(a, 1);
  run.function = Cluster::Id(a, 2);
  run.first_output = Cluster::Id(a, 3);
  run.devices = {0};
  auto refusal = [&](const wire::Run& refused) {
    Outputs out = c.Tell("a", refused);
    return out.size() == 1 && TypeOf(out[0]) == Type::kReject ? Read<wire::Reject>(out[0]).status.code() : Code::kOk;
  };
  wire::Run taken = run;
  taken.arguments = {Cluster::Id(b, 1)};
  EXPECT(refusal(taken) == Code::kPermissionDenied);
  taken.arguments = {wire::kAssembledBit};
  taken.assembled = {Cluster::Id(b, 1), 0};
  EXPECT(refusal(taken) == Code::kPermissionDenied);
  wire::Run many = run;
  many.output_count = wire::kMaxRunOutputs + 1;
  EXPECT(refusal(many) == Code::kInvalidArgument);
  many.output_count = 4;
  many.first_output = Cluster::Id(a, (uint64_t{1} << wire::kClientShift) - 2);
  EXPECT(refusal(many) == Code::kPermissionDenied);
}

TEST(AComputationOverTwoIslandsIsRefused) {
  Cluster c;
  c.AddHost("h0");
  c.AddHost("h1");
  const uint32_t a = c.AddClient("a");
  c.Register("a", a, 1, 0);
  c.Registered("h0", a, 1);
  Outputs out = c.Run("a", a, 10, 1, {0, 1});
  EXPECT_EQ(Read<wire::Done>(out.at(0)).outcomes.at(0).status.code(), Code::kUnimplemented);
}

TEST(SlicesAreGrantedAtOnceAndEndWithTheirClient) {
  Cluster c;
  c.AddHost("h0", 2);
  c.AddHost("h1", 4);
  const uint32_t a = c.AddClient("a");
  const uint32_t b = c.AddClient("b");
  // Also while a run of the client waits for its compile.
  c.Register("a", a, 1, 0);
  EXPECT_EQ(c.Run("a", a, 10, 1).size(), 0u);
  Outputs out = c.Tell("a", wire::RequestSlice{Cluster::Id(a, 5), 4, "", "", 0, 0});
  ASSERT_EQ(out.size(), 1u);
  const auto granted = Read<wire::SliceGranted>(out[0]);
  ASSERT_OK(granted.status);
  EXPECT(granted.request == Cluster::Id(a, 5) && granted.devices == (std::vector<uint32_t>{2, 3, 4, 5}));
  out = c.Tell("a", wire::RequestSlice{Cluster::Id(a, 6), 5, "", "", 0, 0});
  EXPECT_EQ(Read<wire::SliceGranted>(out.at(0)).status.code(), Code::kResourceExhausted);
  // Nobody releases another's.
  out = c.Tell("b", wire::ReleaseSlice{{granted.slice}});
  EXPECT_EQ(Read<wire::Reject>(out.at(0)).status.code(), Code::kPermissionDenied);
  EXPECT(c.state.StatusJson(c.now).find("\"device_slices\": [1, 1, 1, 1]") != std::string::npos);
  c.state.OnDisconnected("a", "killed", c.out);
  EXPECT(c.state.StatusJson(c.now).find("\"slices\": []") != std::string::npos);
  // A host that is lost is not granted.
  c.state.OnDisconnected("w-h1", "killed", c.out);
  out = c.Tell("b", wire::RequestSlice{Cluster::Id(b, 7), 4, "", "", 0, 0});
  EXPECT_EQ(Read<wire::SliceGranted>(out.at(0)).status.code(), Code::kResourceExhausted);
}

TEST(CopiesBetweenHostsAreAnnouncedToTheReceiver) {
  Cluster c;
  c.AddHost("h0");
  c.AddHost("h1");
  const uint32_t a = c.AddClient("a");
  Outputs out = c.Tell("a", wire::Copy{Cluster::Id(a, 1), 0, 0, Cluster::Id(a, 2), 1, {DType::kF32, {4}}});
  ASSERT_EQ(out.size(), 2u);
  EXPECT(out[0].to == "w-h1" && TypeOf(out[0]) == Type::kExpect);
  EXPECT(out[1].to == "w-h0" && TypeOf(out[1]) == Type::kCopy);
}

}  // namespace
}  // namespace pathways::controller
