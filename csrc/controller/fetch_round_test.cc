#include "csrc/controller/fetch_round.h"

#include "csrc/controller/test_support.h"

namespace pathways::controller {
namespace {

TEST(AHostThatKeepsUpIsNeverWaitedFor) {
  FetchRound round;
  for (uint64_t sent = 0; sent < 100'000; ++sent) EXPECT(round.Pass(sent, sent < 256 ? 0 : sent - 256));
}

TEST(NoMoreAreOnTheirWayThanTheBound) {
  FetchRound round;
  uint64_t sent = 0, taken = 0;
  for (int i = 0; i < 50; ++i) {
    while (round.Pass(sent, taken)) ++sent;
    EXPECT(sent - taken <= FetchRound::kMost);
    EXPECT(!round.Pass(sent, taken));
    taken = sent;  // the host has had them all
  }
  EXPECT(sent >= 50 * FetchRound::kHalf);
}

TEST(WhatHasPassedCountsBeforeItIsSent) {
  FetchRound round;
  int passed = 0;
  while (passed < 5000 && round.Pass(7, 7)) ++passed;
  EXPECT_EQ(passed, static_cast<int>(FetchRound::kMost));
}

struct Flooded : Cluster {
  uint64_t sent = 0;  // messages to the host, as the lines count them

  Flooded() : Cluster{ClusterState(Options(&sent)), {}} {}
  static ClusterOptions Options(const uint64_t* sent) {
    ClusterOptions options{"c", "0.1.0"};
    options.sent_to = [sent](const Connection&) { return *sent; };
    return options;
  }
  size_t Fetches(const Outputs& outputs) {
    size_t count = 0;
    for (const Outgoing& outgoing : outputs) count += outgoing.to == "w-h" && TypeOf(outgoing) == wire::Type::kFetch;
    sent += count;
    return count;
  }
  size_t Ask(const Connection& from, uint32_t client, uint64_t n) {
    wire::Fetch fetch;
    fetch.request = Id(client, 1'000'000 + n);
    fetch.buffer = Id(client, 1);
    return Fetches(Tell(from, fetch));
  }
  size_t Takes() {
    wire::Heartbeat beat;
    beat.received = sent;
    return Fetches(Tell("w-h", beat));
  }
};

TEST(WhoFloodsFetchesWaitsAndNobodyElse) {
  Flooded c;
  c.AddHost("h");
  const uint32_t floods = c.AddClient("floods"), asks = c.AddClient("asks");
  size_t passed = 0;
  for (uint64_t n = 0; n < 5000; ++n) passed += c.Ask("floods", floods, n);
  EXPECT_EQ(passed, FetchRound::kMost);
  EXPECT_EQ(c.Ask("asks", asks, 1), 1u);
  EXPECT_HAS(c.state.StatusJson(c.now), "its 1024 latest fetches to be taken by host 'h'");
  // What comes behind keeps its place.
  wire::Free free;
  free.buffers = {Cluster::Id(floods, 1)};
  EXPECT(c.Tell("floods", free).empty());
  size_t rounds = 0;
  for (; passed < 5000 && rounds < 20; ++rounds) passed += c.Takes();
  EXPECT_EQ(passed, 5000u);
  EXPECT(rounds >= (5000 - FetchRound::kMost) / FetchRound::kMost);
  EXPECT(c.state.StatusJson(c.now).find("latest fetches") == std::string::npos);
}

TEST(AHostOfThisProcessIsNotWaitedFor) {
  Flooded c;
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = "0.1.0";
  hello.name = "simulated";
  hello.devices.resize(1);
  (void)c.Tell("local/1", hello);
  const uint32_t client = c.AddClient("x");
  size_t passed = 0;
  for (uint64_t n = 0; n < 5000; ++n) {
    wire::Fetch fetch;
    fetch.request = Cluster::Id(client, 1'000'000 + n);
    fetch.buffer = Cluster::Id(client, 1);
    passed += c.Tell("x", fetch).size();
  }
  EXPECT_EQ(passed, 5000u);
}

TEST(FetchesOfALostHostAreNotWaitedFor) {
  Flooded c;
  c.AddHost("h");
  const uint32_t client = c.AddClient("floods");
  for (uint64_t n = 0; n < 3000; ++n) (void)c.Ask("floods", client, n);
  c.out.clear();
  c.state.OnDisconnected("w-h", "it was killed", c.out);
  size_t answered = 0;
  for (const Outgoing& outgoing : c.out) answered += TypeOf(outgoing) == wire::Type::kFetched;
  EXPECT_EQ(answered, 3000 - FetchRound::kMost);
}

}  // namespace
}  // namespace pathways::controller
