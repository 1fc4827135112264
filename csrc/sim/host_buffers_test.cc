// Buffers of a host alone: no functions, no runs, and no host around them.
#include "csrc/sim/host_buffers.h"

#include "csrc/testing/test.h"

namespace pathways::sim {
namespace {

const TensorType kFour{DType::kF32, {4}};  // 16 bytes

// Host 0 of two, with devices 0 and 1 of 40 bytes each. Host 1 has devices 2 and 3.
struct OneHost {
  OneHost() {
    world.AddHost(0, 0, 2);
    world.AddHost(1, 2, 2);
  }
  void Put(uint64_t buffer, uint32_t shard, uint32_t device) {
    wire::Put put;
    put.buffer = buffer;
    put.shard = shard;
    put.device = device;
    put.type = kFour;
    put.inline_data.assign(16, '\1');
    buffers.On(put);
  }
  void RunAll() {
    while (world.timeline.RunNext()) {
    }
  }
  // The only message that was sent since the last call.
  template <typename Body>
  Result<Body> Sent() {
    const std::vector<std::string> taken = std::exchange(sent, {});
    if (taken.size() != 1) return Internal("expected one message, got " + std::to_string(taken.size()));
    PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(taken[0]));
    if (head.header.type != Body::kType) return Internal("got a " + std::string(wire::TypeName(head.header.type)));
    return wire::Decode<Body>(head.body);
  }

  World world{{}, {.latency_ns = 1000, .bytes_per_ns = 1.0, .local_bytes_per_ns = 2.0}};
  std::vector<std::string> sent;
  HostSite site{world,
                {.name = "a", .island = "i", .build = "1", .devices = 2, .memory_limit_bytes = 40},
                [this](std::string head, std::vector<Payload>) { sent.push_back(std::move(head)); }};
  HostBuffers buffers{site};
};

TEST(ShardsOfABufferAreAccountedOnTheirDevicesUntilTheLastHolderLetsGo) {
  OneHost host;
  host.Put(7, 0, 0);
  host.Put(7, 1, 1);
  EXPECT_EQ(host.buffers.size(), 1u);
  EXPECT_EQ(host.site.account->used(0), 16);
  EXPECT_EQ(host.site.account->used(1), 16);
  {
    const Result<BufferPtr> held = host.buffers.Find(7);
    ASSERT_OK(held.status());
    EXPECT_EQ((*host.buffers.FindShard(**held, 1))->device, 1u);
    EXPECT_HAS(host.buffers.FindShard(**held, 2).status().ToString(), "host 'a': shard 2 of a buffer is not on this");
    host.buffers.Erase(7);
    EXPECT_HAS(host.buffers.Find(7).status().ToString(), "host 'a': buffer 7 is not on this host");
    EXPECT_EQ(host.site.account->total_used(), 32);
  }
  EXPECT_EQ(host.site.account->total_used(), 0);
  EXPECT(host.sent.empty());
}

TEST(WhatDoesNotFitOrIsNotForThisHostIsAFailedBufferOfWhichTheClientHears) {
  OneHost host;
  host.Put(1, 0, 0);
  host.Put(2, 0, 0);
  host.Put(3, 0, 0);
  const Result<wire::BufferFailed> full = host.Sent<wire::BufferFailed>();
  ASSERT_OK(full.status());
  EXPECT_EQ(full->buffer, 3u);
  EXPECT(full->status.code() == Code::kResourceExhausted);
  EXPECT(host.buffers.Find(3).status() == full->status);
  host.Put(4, 0, 2);
  const Result<wire::BufferFailed> elsewhere = host.Sent<wire::BufferFailed>();
  ASSERT_OK(elsewhere.status());
  EXPECT_HAS(elsewhere->status.ToString(), "host 'a': device 2 is not here");
}

TEST(SpilledBuffersLeaveTheDevicesAndComeBack) {
  OneHost host;
  host.Put(1, 0, 0);
  host.Put(2, 0, 0);
  wire::Spill spill;
  spill.buffers = {1, 99};
  host.buffers.On(spill);
  host.buffers.On(spill);
  EXPECT_EQ(host.site.account->used(0), 16);
  host.Put(3, 0, 0);
  EXPECT(host.sent.empty());
  host.buffers.Erase(2);
  wire::Restore restore;
  restore.buffers = {1};
  host.buffers.On(restore);
  wire::Reply reply;
  host.buffers.AnswerMemory(0, reply);
  ASSERT_EQ(reply.properties.size(), 4u);
  EXPECT_EQ(reply.properties[0].integer, 32);
  EXPECT_EQ(reply.properties[3].integer, 2);  // live buffers
  wire::Free free;
  free.buffers = {1, 3};
  host.buffers.On(free);
  EXPECT_EQ(host.site.account->total_used(), 0);
}

TEST(AFetchIsAnsweredWhenTheValueIsThereAndHasCrossed) {
  OneHost host;
  wire::Expect expect;
  expect.buffer = 5;
  expect.device = 1;
  expect.from_host = 1;
  expect.type = kFour;
  host.buffers.On(expect);
  wire::Fetch fetch;
  fetch.request = 9;
  fetch.buffer = 5;
  host.buffers.On(fetch);
  host.RunAll();
  EXPECT(host.sent.empty());
  host.world.network.Send(1, 0, 5, 16, Value::Settled(0));
  host.RunAll();
  EXPECT_EQ(host.world.timeline.now(), 2 * (16 + 1000));  // to this host, and on to the client
  const Result<wire::Fetched> fetched = host.Sent<wire::Fetched>();
  ASSERT_OK(fetched.status());
  EXPECT_EQ(fetched->request, 9u);
  EXPECT_EQ(fetched->inline_data, std::string(16, '\0'));
}

TEST(ACopyGoesToAnotherDeviceOrToAnotherHostAndTakesItsErrorAlong) {
  OneHost host;
  host.Put(1, 0, 0);
  wire::Copy copy;
  copy.source = 1;
  copy.destination = 2;
  copy.destination_device = 1;
  copy.type = kFour;
  host.buffers.On(copy);
  host.RunAll();
  EXPECT_EQ(host.world.timeline.now(), 8);
  EXPECT_EQ(host.site.account->used(1), 16);
  Status came = Internal("nothing came");
  copy.source = 99;  // there is none
  copy.destination = 3;
  copy.destination_device = 2;
  host.world.network.Receive(0, 1, 3, [&came](int64_t, const Status& error) { came = error; });
  host.buffers.On(copy);
  host.RunAll();
  EXPECT_HAS(came.ToString(), "host 'a': buffer 99 is not on this host");
  EXPECT(host.sent.empty());
}

TEST(AClientThatIsGoneTakesItsBuffersAlongAndADeadHostSaysNothing) {
  OneHost host;
  host.Put((uint64_t{5} << wire::kClientShift) + 1, 0, 0);
  host.Put((uint64_t{6} << wire::kClientShift) + 1, 0, 1);
  host.buffers.DropClient(5);
  EXPECT_EQ(host.buffers.size(), 1u);
  EXPECT_EQ(host.site.account->used_by(5), 0);
  EXPECT_EQ(host.site.account->used_by(6), 16);
  host.site.alive = false;
  host.Put(8, 0, 3);
  EXPECT(host.sent.empty());
}

}  // namespace
}  // namespace pathways::sim
