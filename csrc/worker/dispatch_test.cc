// Messages of the controller: each reaches its part, and those that must wait, wait. All parts together, without a
// process and a controller.
#include "csrc/worker/dispatch.h"

#include "csrc/worker/function_test_support.h"
#include "csrc/worker/parts.h"

namespace pathways::worker {
namespace {

struct KeptStops : Stopper {
  std::vector<int> codes;
  void Stop(int exit_code, const std::string&) override { codes.push_back(exit_code); }
};

struct WholeHost : TestHostWithBuffers {
  KeptStops stops;
  std::unique_ptr<transport::ControlLine> control =
      *transport::ControlLine::Open("tcp://127.0.0.1:9", {.insecure = true});
  Parts parts{context, incoming, *data, *control, stops, Options()};

  explicit WholeHost(pjrt::Client* client, EnqueueAhead ahead = EnqueueAhead::kAfterArguments,
                     std::vector<int64_t> limits = {0, 0})
      : TestHostWithBuffers(client->shared_from_this(), std::move(limits)) {
    context.SetEnqueueAhead(ahead);
  }
  ~WholeHost() {
    engine->Stop();
    parts.functions.StopCompiling();
    EXPECT(parts.files.Stop(std::chrono::seconds(20)));
    control->Close();
  }
  Parts::Options Options() {
    Parts::Options options;
    options.compiler = std::make_unique<Compiler>(context.client(), "");
    return options;
  }
  template <typename Body>
  void Say(const Body& body, std::vector<std::string> payloads = {}) {
    transport::Frames frames;
    frames.emplace_back(wire::Encode(body));
    for (std::string& payload : payloads) frames.emplace_back(std::move(payload));
    OnEngine([&] { parts.dispatch.OnMessage(frames); });
  }
  void SayFetch(uint64_t id) {
    wire::Fetch fetch;
    fetch.request = fetch.buffer = id;
    Say(fetch);
  }
  void SayExpect(uint64_t id) { Say(PairThatComes(id)); }
};

TEST(MessagesReachTheirParts) {
  NEED_PLUGIN(client);
  WholeHost host(client);
  host.Say(DoubledRequest(), {DoubledModule(), *pjrt::ForOneDevice("")});
  EXPECT_OK(host.messages.Await<wire::Registered>().at(0).status);
  host.Say(PairOf(10));
  host.Say(RunOf(20, 10));
  EXPECT_OK(host.messages.Await<wire::Done>().at(0).outcomes.at(0).status);
  host.SayFetch(20);
  EXPECT_EQ(host.messages.Await<wire::Fetched>().at(0).inline_data.size(), 8);
  wire::Unregister gone;
  gone.functions = {kFunction};
  host.Say(gone);
  host.Say(RunOf(21, 10));
  EXPECT_HAS(host.messages.Await<wire::Done>(2).at(1).outcomes.at(0).status.message(), "is not registered");
  EXPECT_EQ(host.context.live_buffers(), 3);
}

TEST(BehindARunThatWaitsOthersWaitButNotTheQuestionWhy) {
  NEED_PLUGIN(client);
  WholeHost host(client);
  host.Say(DoubledRequest(), {DoubledModule(), *pjrt::ForOneDevice("")});
  EXPECT_OK(host.messages.Await<wire::Registered>().at(0).status);
  host.SayExpect(10);
  host.Say(RunOf(20, 10));
  host.OnEngine([&] { EXPECT(host.parts.parking.parked()); });
  host.SayFetch(20);
  host.SayExpect(11);  // announcements pass
  EXPECT_EQ(host.context.live_buffers(), 2);
  wire::Query why;
  why.kind = wire::QueryKind::kActivity;
  host.Say(why);
  const wire::Reply reply = host.messages.Await<wire::Reply>().at(0);
  EXPECT_EQ(reply.properties.at(0).text, "2 messages until a device has room");
  EXPECT(host.messages.All<wire::Fetched>().empty());
  const float values[] = {1, 2};
  host.incoming.Deliver(10, std::as_bytes(std::span(values)), nullptr);
  EXPECT_OK(host.messages.Await<wire::Done>().at(0).outcomes.at(0).status);
  EXPECT_EQ(host.messages.Await<wire::Fetched>().at(0).inline_data.size(), 8);
  host.OnEngine([&] { EXPECT(!host.parts.parking.parked()); });
}

TEST(ACopyWithinTheHostWaitsForWhatItCopiesAndFailsWithIt) {
  NEED_PLUGIN(client);
  WholeHost host(client, EnqueueAhead::kAfterTransfers);
  wire::Copy copy;
  copy.type = kPair;
  for (const uint64_t id : {10, 11}) {
    host.SayExpect(id);
    copy.source = id;
    copy.destination = id + 10;
    copy.destination_device = 5;
    host.Say(copy);
  }
  host.OnEngine([&] {
    EXPECT(host.parts.parking.parked());
    EXPECT(host.context.store().Find(20) == nullptr);
  });
  const float values[] = {1, 2};
  host.incoming.Deliver(10, std::as_bytes(std::span(values)), nullptr);
  host.SayFetch(20);
  host.incoming.DeliverFailure(11, Unavailable("it will not come"));
  EXPECT_HAS(host.messages.Await<wire::BufferFailed>().at(0).status.message(), "it will not come");
  EXPECT_EQ(host.messages.Await<wire::Fetched>().at(0).inline_data.size(), 8);
  host.OnEngine([&] { EXPECT(!host.parts.parking.parked()); });
}

TEST(WhatAClientLeavesIsCollected) {
  NEED_PLUGIN(client);
  WholeHost host(client);
  host.Say(PairOf(kFunction + 1));
  host.Say(PairOf(10));  // nobody's
  EXPECT_EQ(host.context.live_buffers(), 2);
  wire::OwnerGone gone;
  gone.client = 1;
  host.Say(gone);
  EXPECT_EQ(host.context.live_buffers(), 1);
}

TEST(TheHostLearnsOfTheOthersAndOfTheEnd) {
  NEED_PLUGIN(client);
  WholeHost host(client);
  wire::Topology topology;
  topology.hosts.resize(2);
  topology.hosts[0].name = "g";
  topology.hosts[1].host = 1;
  topology.hosts[1].name = "h";
  host.Say(topology);
  wire::HostLost lost;
  lost.host = 0;
  lost.reason = "host 'g' is lost";
  host.Say(lost);
  EXPECT_EQ(host.parts.cluster.Find(0)->alive, wire::kHostLost);
  wire::Reject reject;
  reject.status = FailedPrecondition("another version");
  host.Say(reject);
  host.Say(wire::Goodbye());
  EXPECT(host.stops.codes == (std::vector<int>{kExitRefused, kExitOk}));
  host.Say(wire::Done());  // which no worker takes, and which changes nothing
  host.OnEngine([&] {
    transport::Frames nothing;
    host.parts.dispatch.OnMessage(nothing);
  });
}

}  // namespace
}  // namespace pathways::worker
