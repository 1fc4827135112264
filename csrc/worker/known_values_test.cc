// Plugins that hand no errors on: what is held back, what fails with what it read, and what is not given away before it
// is known to be right. Here the plugin does hand errors on, so runs that end well in spite of their input are made up.
#include "csrc/worker/known_values.h"

#include <filesystem>

#include "csrc/worker/files.h"
#include "csrc/worker/function_test_support.h"
#include "csrc/worker/spills.h"

namespace pathways::worker {
namespace {

constexpr auto kLostHost = "host 'g' is lost";

struct HostWithoutErrors : HostOfFunctions {
  explicit HostWithoutErrors(pjrt::Client* client, EnqueueAhead ahead = EnqueueAhead::kAfterTransfers)
      : HostOfFunctions(client->shared_from_this()) {
    context.SetEnqueueAhead(ahead);
    OnEngine([&] { EXPECT_OK(Register()); });
    (void)messages.Await<wire::Registered>();
  }
  void Announce(uint64_t id) {
    OnEngine([&] { EXPECT_OK(buffers.Expect(PairThatComes(id))); });
  }
  void Lose(uint64_t id) {
    OnEngine([&] { causes.Remember(kLostHost, Unavailable(kLostHost)); });
    incoming.DeliverFailure(id, Unavailable(kLostHost));
  }
  void AwaitRoom() {
    for (int i = 0; i < 2000 && room == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(room, 1);
  }
  bool MustWait(const wire::Run& run) {
    bool waits = false;
    OnEngine([&] { waits = runs.MustWait(run); });
    return waits;
  }
  // A value whose run is under way: what is said to make it.
  std::shared_ptr<store::Origin> PutUnknown(uint64_t id) {
    auto origin = std::make_shared<store::Origin>();
    OnEngine([&] {
      EXPECT_OK(PutPair(id));
      context.store().Find(id)->origin = origin;
    });
    return origin;
  }
  void End(const std::shared_ptr<store::Origin>& origin, const Status& cause) {
    OnEngine([&] { RootCauses::End(*origin, cause); });
  }
};

TEST(WhatReadsATransferWaitsForItAndFailsWithIt) {
  NEED_PLUGIN(client);
  for (const EnqueueAhead ahead : {EnqueueAhead::kAfterTransfers, EnqueueAhead::kAfterArguments}) {
    HostWithoutErrors host(client, ahead);
    host.Announce(10);
    EXPECT(host.MustWait(RunOf(20, 10)));
    host.Lose(10);
    host.AwaitRoom();
    EXPECT(!host.MustWait(RunOf(20, 10)));
    host.OnEngine([&] { host.runs.Start(RunOf(20, 10), 1); });
    EXPECT_EQ(host.Outcome(1).status.message(), kLostHost);
    EXPECT_EQ(host.Fetch(20).status.message(), kLostHost);
    EXPECT_EQ(host.Fetch(10).status.message(), kLostHost);
  }
}

TEST(WhatReadsAResultWaitsOnlyWhereItIsToldTo) {
  NEED_PLUGIN(client);
  HostWithoutErrors host(client);
  host.Announce(10);
  host.context.SetEnqueueAhead(EnqueueAhead::kAlways);
  host.OnEngine([&] { host.runs.Start(RunOf(20, 10), 1); });  // waits inside the plugin
  host.context.SetEnqueueAhead(EnqueueAhead::kAfterTransfers);
  EXPECT(!host.MustWait(RunOf(21, 20)));
  EXPECT(host.MustWait(RunOf(21, 10)));
  host.OnEngine([&] { EXPECT(host.launcher.MustArrive(*host.context.store().Find(20), true)); });
  host.context.SetEnqueueAhead(EnqueueAhead::kAfterArguments);
  EXPECT(host.MustWait(RunOf(21, 20)));
  const float values[] = {1, 2};
  host.incoming.Deliver(10, std::as_bytes(std::span(values)), nullptr);
  EXPECT_OK(host.Outcome(1).status);
  for (int i = 0; i < 2000 && host.MustWait(RunOf(21, 20)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT(!host.MustWait(RunOf(21, 10)));
  host.OnEngine([&] { EXPECT(!host.context.store().Find(10)->At(0).buffer.arrives()); });
}

TEST(ARunThatReadWhatFailedHasFailed) {
  NEED_PLUGIN(client);
  HostWithoutErrors host(client);
  const auto origin = host.PutUnknown(10);
  host.OnEngine([&] {
    host.runs.Start(RunOf(20, 10), 1);
    host.runs.Start(RunOf(21, 20), 2);
  });
  host.OnEngine([&] {});
  EXPECT(host.messages.All<wire::Done>().empty());
  host.End(origin, Internal("out of luck"));
  const std::vector<wire::RunOutcome> outcomes = host.messages.Await<wire::Done>(1).at(0).outcomes;
  ASSERT_EQ(outcomes.size(), 2);
  for (const wire::RunOutcome& outcome : outcomes) EXPECT_EQ(outcome.status.message(), "out of luck");
  for (const uint64_t id : {20, 21}) EXPECT_EQ(host.Fetch(id).status.message(), "out of luck");
  host.OnEngine([&] { host.runs.Start(RunOf(22, 10), 3); });  // known by now
  EXPECT_EQ(host.Outcome(2).status.message(), "out of luck");
}

TEST(NothingIsGivenAwayBeforeItIsKnownToBeRight) {
  NEED_PLUGIN(client);
  for (const bool metadata_only : {false, true}) {
    for (const bool fails : {false, true}) {
      HostWithoutErrors host(client);
      const auto origin = host.PutUnknown(10);
      wire::Fetch fetch;
      fetch.buffer = 10;
      fetch.metadata_only = metadata_only;
      host.OnEngine([&] { host.buffers.Fetch(fetch); });
      for (int i = 0; i < 20; ++i) host.OnEngine([] {});
      EXPECT(host.messages.All<wire::Fetched>().empty());
      host.End(origin, fails ? Internal("out of luck") : OkStatus());
      const wire::Fetched answer = host.messages.Await<wire::Fetched>().at(0);
      EXPECT_EQ(answer.status.message(), fails ? "out of luck" : "");
      EXPECT_EQ(answer.inline_data.size(), fails || metadata_only ? 0 : 8);
    }
  }
}

TEST(NothingIsSentBeforeItIsKnownToBeRight) {
  NEED_PLUGIN(client);
  HostWithoutErrors host(client);
  const auto good = host.PutUnknown(10), bad = host.PutUnknown(11);
  for (const uint64_t id : {20, 21}) host.Announce(id);
  host.OnEngine([&] {
    for (const uint64_t id : {10, 11}) {
      host.buffers.SendShard("", id + 10, *FindShard(host.context, id, 0), {},
                             [&, id](const Status& status) { host.incoming.DeliverFailure(id + 10, status); });
    }
  });
  EXPECT(host.MustWait(RunOf(30, 20)));
  host.End(good, OkStatus());
  EXPECT_EQ(host.Fetch(20).inline_data.size(), 8);
  host.End(bad, Internal("out of luck"));
  EXPECT_HAS(host.Fetch(21).status.message(), "out of luck");
}

TEST(NothingIsSavedThatIsNotKnownToBeRight) {
  NEED_PLUGIN(client);
  HostWithoutErrors host(client);
  Files files(host.context, host.incoming, {});
  const std::string path =
      (std::filesystem::temp_directory_path() / ("known_values_test." + std::to_string(::getpid()))).string();
  wire::Save save;
  save.path = path;
  save.file_bytes = 8;
  save.shards = {{10, 0, {{0, 0, {2}, {0}, {0}, {2}}}}};
  const auto origin = host.PutUnknown(10);
  host.OnEngine([&] { files.Save(save); });
  for (int i = 0; i < 20; ++i) host.OnEngine([] {});
  EXPECT(host.messages.All<wire::Stored>().empty());
  host.End(origin, Internal("out of luck"));
  EXPECT_HAS(host.messages.Await<wire::Stored>().at(0).status.message(), "out of luck");
  EXPECT(!std::filesystem::exists(path));
  EXPECT(files.Stop(std::chrono::seconds(20)));
}

TEST(WhatWasMovedToHostMemoryIsNotGivenAwayEither) {
  NEED_PLUGIN(client);
  HostWithoutErrors host(client);
  Spills spills(host.context, *host.data);
  const auto origin = host.PutUnknown(10);
  wire::Spill spill;
  spill.buffers = {10};
  host.OnEngine([&] { spills.Spill(spill); });
  (void)host.messages.Await<wire::Spill>();
  host.OnEngine([&] { EXPECT(host.context.store().Find(10)->At(0).staged != nullptr); });
  wire::Fetch fetch;
  fetch.buffer = 10;
  host.OnEngine([&] { host.buffers.Fetch(fetch); });
  host.OnEngine([] {});
  EXPECT(host.messages.All<wire::Fetched>().empty());
  host.End(origin, Internal("out of luck"));
  EXPECT_EQ(host.messages.Await<wire::Fetched>().at(0).status.message(), "out of luck");
  // A value whose transfer fails stays where its error is.
  host.Announce(11);
  spill.buffers = {11};
  host.OnEngine([&] { spills.Spill(spill); });
  host.Lose(11);
  (void)host.messages.Await<wire::Spill>(2);
  EXPECT_EQ(host.Fetch(11).status.message(), kLostHost);
}

TEST(ACopyFailsWithItsSource) {
  NEED_PLUGIN(client);
  HostWithoutErrors host(client);
  const auto origin = host.PutUnknown(10);
  wire::Copy copy;
  copy.source = 10;
  copy.type = kPair;
  for (const uint32_t device : {4, 5}) {
    copy.destination = device;
    copy.destination_device = device;
    host.OnEngine([&] { host.buffers.Copy(copy); });
  }
  host.End(origin, Internal("out of luck"));
  for (const uint64_t id : {4, 5}) EXPECT_EQ(host.Fetch(id).status.message(), "out of luck");
  copy.destination = 6;
  host.OnEngine([&] { host.buffers.Copy(copy); });
  EXPECT_EQ(host.messages.Await<wire::BufferFailed>().at(0).status.message(), "out of luck");
}

}  // namespace
}  // namespace pathways::worker
