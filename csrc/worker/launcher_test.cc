// Functions: registered, compiled, run; and what waits for them.
#include "csrc/worker/launcher.h"

#include <cstring>

#include "csrc/worker/function_test_support.h"

namespace pathways::worker {
namespace {

wire::Query QueryOf(uint64_t function) {
  wire::Query query;
  query.function = function;
  return query;
}

TEST(AFunctionIsCompiledAndRun) {
  NEED_PLUGIN(client);
  HostOfFunctions host(client->shared_from_this());
  host.OnEngine([&] { EXPECT_OK(host.Register()); });
  const wire::Registered registered = host.messages.Await<wire::Registered>().at(0);
  EXPECT_OK(registered.status);
  EXPECT(registered.outputs.at(0) == kPair);
  host.OnEngine([&] {
    EXPECT_OK(host.PutPair(10));
    EXPECT(!host.runs.MustWait(RunOf(20, 10)));
    host.runs.Start(RunOf(20, 10, true), 1);
    EXPECT(host.context.store().Find(10) == nullptr);  // given up
  });
  EXPECT_OK(host.Outcome(1).status);
  const wire::Fetched doubled = host.Fetch(20);
  ASSERT_EQ(doubled.inline_data.size(), 8);
  float values[2];
  std::memcpy(values, doubled.inline_data.data(), sizeof values);
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[1], 4);
  host.OnEngine([&] { EXPECT(host.Register().code() == Code::kAlreadyExists); });
}

TEST(ARunThatCannotBeIsReportedAndItsArgumentsAreGone) {
  NEED_PLUGIN(client);
  HostOfFunctions host(client->shared_from_this(), {16, 16});
  host.OnEngine([&] {
    EXPECT_OK(host.PutPair(10));
    host.runs.Start(RunOf(20, 10, true), 1);
    EXPECT(host.context.store().Find(10) == nullptr);
  });
  EXPECT_HAS(host.Outcome(1).status.message(), "host 'h': function");
  EXPECT_HAS(host.Fetch(20).status.message(), "is not registered");
  host.OnEngine([&] { EXPECT_OK(host.Register()); });
  (void)host.messages.Await<wire::Registered>();
  host.OnEngine([&] { host.runs.Start(RunOf(21, 11), 2); });
  EXPECT_HAS(host.Outcome(2).status.message(), "argument 0 of function 'doubled' is not on this host");
  host.OnEngine([&] {
    EXPECT_OK(host.PutPair(12));
    EXPECT_OK(host.PutPair(13));  // the device is full now
    host.runs.Start(RunOf(22, 12), 3);
  });
  EXPECT_HAS(host.Outcome(3).status.message(), "out of device memory");
}

TEST(AnArgumentThatMustArriveIsWaitedFor) {
  NEED_PLUGIN(client);
  HostOfFunctions host(client->shared_from_this());
  host.context.SetEnqueueAhead(EnqueueAhead::kAfterArguments);
  host.OnEngine([&] {
    EXPECT_OK(host.buffers.Expect(PairThatComes(10)));
    EXPECT(host.runs.MustWait(RunOf(20, 10)));
  });
  EXPECT_EQ(host.room, 0);
  host.incoming.DeliverFailure(10, Internal("it will not come"));
  EXPECT(!host.Fetch(10).status.ok());
  for (int i = 0; i < 2000 && host.room == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(host.room, 1);
  host.OnEngine([&] { EXPECT(!host.runs.MustWait(RunOf(20, 10))); });
}

TEST(WhatWaitsForACompileGoesOnWhenItIsThere) {
  NEED_PLUGIN(client);
  HostOfFunctions host(client->shared_from_this());
  host.OnEngine([&] {
    EXPECT_OK(host.Register());
    const std::shared_ptr<Function>& function = host.functions.Find(kFunction);
    function->programs = {7};
    function->waiting = {QueryOf(kFunction)};
  });
  (void)host.messages.Await<wire::Registered>();
  host.OnEngine([&] {
    ASSERT_EQ(host.waiting.compiled.size(), 1);
    EXPECT_EQ(host.waiting.compiled[0].first, 7);
    EXPECT_OK(host.waiting.compiled[0].second);
    EXPECT_EQ(host.waiting.answered.size(), 1);
  });
}

TEST(AQueryOfAFunctionThatIsUnregisteredBeforeItIsCompiledIsAnswered) {
  NEED_PLUGIN(client);
  HostOfFunctions host(client->shared_from_this());
  host.OnEngine([&] {
    EXPECT_OK(host.Register());
    host.functions.Find(kFunction)->waiting = {QueryOf(kFunction)};
    const uint64_t ids[] = {kFunction, kFunction + 1};
    host.functions.Unregister(ids);
    EXPECT(host.functions.Find(kFunction) == nullptr);
    EXPECT_EQ(host.waiting.answered.size(), 1);
    EXPECT_OK(host.Register());
    host.functions.Find(kFunction)->waiting = {QueryOf(kFunction)};
    host.functions.ForgetClient(1);
    EXPECT_EQ(host.waiting.answered.size(), 1);  // nobody asks any more
  });
}

TEST(AFunctionThatCannotBeCompiledSaysWhy) {
  NEED_PLUGIN(client);
  HostOfFunctions host(client->shared_from_this());
  host.OnEngine([&] { EXPECT_OK(host.Register(1)); });
  EXPECT_HAS(host.messages.Await<wire::Registered>().at(0).status.message(), "a module and options");
  host.OnEngine([&] { EXPECT(host.functions.Find(kFunction)->compiled); });
}

}  // namespace
}  // namespace pathways::worker
