// Values that come in, go out, are moved to host memory and back.
#include "csrc/worker/buffers.h"

#include "csrc/worker/spills.h"
#include "csrc/worker/staging.h"
#include "csrc/worker/test_support.h"

namespace pathways::worker {
namespace {

TEST(WhatIsPutCanBeFetchedUntilItIsFreed) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this());
  EXPECT_OK(host.Put(1, "abc"));
  EXPECT_EQ(host.Fetch(1).inline_data, "abc");
  wire::Free free;
  free.buffers = {1};
  host.buffers.Free(free);
  EXPECT_HAS(host.Fetch(1).status.message(), "host 'h': buffer 1 is not on this host");
  EXPECT_EQ(host.buffers.unready_sends(), 0);
}

TEST(WhatDoesNotFitIsToldToItsClient) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this(), {4, 0});
  EXPECT_OK(host.Put(1, "abcdef"));
  EXPECT_HAS(host.messages.Await<wire::BufferFailed>().at(0).status.message(), "out of device memory");
  EXPECT(!host.Fetch(1).status.ok());
  EXPECT_OK(host.Put(2, "abcdef", 5));
  EXPECT_EQ(host.Fetch(2).inline_data, "abcdef");
  EXPECT_HAS(host.Put(3, "a", 9).message(), "expected a device of this host");
}

TEST(ACopyIsAValueOfItsOwn) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this());
  EXPECT_OK(host.Put(1, "abc"));
  for (const uint32_t device : {4, 5}) {
    wire::Copy copy;
    copy.source = 1;
    copy.destination = device;
    copy.destination_device = device;
    copy.type = {DType::kU8, {3}};
    host.buffers.Copy(copy);
    EXPECT_EQ(host.Fetch(device).inline_data, "abc");
  }
  wire::Copy copy;
  copy.source = 9;
  copy.destination = 10;
  copy.destination_device = 5;
  host.buffers.Copy(copy);
  EXPECT_HAS(host.messages.Await<wire::BufferFailed>().at(0).status.message(), "buffer 9 is not on this host");
}

TEST(AValueOfAnotherHostIsThereBeforeItsBytes) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this());
  wire::Expect expect;
  expect.buffer = 1;
  expect.device = 4;
  expect.from_host = 0;
  expect.type = {DType::kU8, {3}};
  EXPECT_OK(host.buffers.Expect(expect));
  host.incoming.Deliver(1, std::as_bytes(std::span("xyz", 3)), nullptr);
  EXPECT_EQ(host.Fetch(1).inline_data, "xyz");
}

TEST(AFailedReadIsAnsweredWithItsCause) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this());
  wire::Expect expect;
  expect.buffer = 1;
  expect.device = 4;
  expect.type = {DType::kU8, {3}};
  EXPECT_OK(host.buffers.Expect(expect));
  host.causes.Remember("lost", Unavailable("host 'g' is lost"));
  host.incoming.DeliverFailure(1, Unavailable("lost"));
  EXPECT_HAS(host.Fetch(1).status.message(), "host 'g' is lost");
}

TEST(AValueIsMovedToHostMemoryAndBack) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this(), {1000, 1000});
  Spills spills(host.context, *host.data);
  EXPECT_OK(host.Put(1, "abc"));
  store::ObjectStore& store = host.context.store();
  wire::Spill spill;
  spill.buffers = {1};
  host.OnEngine([&] { spills.Spill(spill); });
  EXPECT_EQ(host.messages.Await<wire::Spill>().at(0).buffers.at(0), 1);
  EXPECT_EQ(store.staged_bytes(), 3);
  EXPECT_EQ(store.account().used(0), 0);
  EXPECT_EQ(host.Fetch(1).inline_data, "abc");
  wire::Restore restore;
  restore.buffers = {1};
  host.OnEngine([&] { spills.Restore(restore); });
  EXPECT_EQ(store.staged_bytes(), 0);
  EXPECT_EQ(host.Fetch(1).inline_data, "abc");
  // What is not there, or has failed, holds no memory: answered at once.
  spill.buffers = {7};
  host.OnEngine([&] { spills.Spill(spill); });
  EXPECT_EQ(host.messages.Await<wire::Spill>(2).at(1).buffers.at(0), 7);
}

TEST(DevicesOfTheHostLeaveSomeOfItsMemoryForOthers) {
  const TestHost bounded(nullptr, {int64_t{1} << 50}), unbounded;
  EXPECT_EQ(StagingLimit(bounded.context), 0);
  EXPECT(StagingLimit(unbounded.context) > 0);
}

}  // namespace
}  // namespace pathways::worker
