// Runs that end, and what is said of those that fail.
#include "csrc/worker/completions.h"

#include "csrc/worker/test_support.h"

namespace pathways::worker {
namespace {

std::shared_ptr<PendingRun> Run(uint64_t number, std::string what = "function 'f'") {
  auto pending = std::make_shared<PendingRun>();
  pending->run = number;
  pending->first_output = number;
  pending->output_count = 1;
  pending->what = std::move(what);
  return pending;
}

std::vector<wire::RunOutcome> Outcomes(const TestHost& host, size_t messages) {
  std::vector<wire::RunOutcome> all;
  for (const wire::Done& done : host.messages.Await<wire::Done>(messages)) {
    all.insert(all.end(), done.outcomes.begin(), done.outcomes.end());
  }
  return all;
}

TEST(RunsThatEndTogetherAreReportedTogether) {
  TestHost host;
  RootCauses causes;
  Completions completions(host.context, causes);
  host.OnEngine([&] {
    for (uint64_t n = 1; n <= 3; ++n) completions.Enqueued(Run(n));
  });
  const auto outcomes = Outcomes(host, 1);
  ASSERT_EQ(outcomes.size(), 3);
  for (uint64_t n = 1; n <= 3; ++n) {
    EXPECT_EQ(outcomes[n - 1].run, n);
    EXPECT_EQ(outcomes[n - 1].host, 1);
    EXPECT_OK(outcomes[n - 1].status);
  }
  host.engine->Stop();
}

TEST(ARunThatCouldNotBeginPoisonsItsResults) {
  TestHost host;
  RootCauses causes;
  Completions completions(host.context, causes);
  const uint64_t results[] = {5, 6};
  host.OnEngine([&] { completions.Poison(1, results, NotFound("no such function")); });
  EXPECT_HAS(Outcomes(host, 1).at(0).status.message(), "no such function");
  for (const uint64_t id : results) {
    EXPECT_HAS(host.context.store().Find(id)->error.message(), "no such function");
  }
  host.engine->Stop();
}

TEST(WhoeverFailedFirstIsToBlame) {
  TestHost host;
  RootCauses causes;
  Completions completions(host.context, causes);
  host.OnEngine([&] {
    for (const uint64_t id : {1, 2}) (void)host.context.store().Insert(id, std::make_shared<store::Object>(0));
    auto first = Run(1, "function 'first'"), second = Run(2, "function 'second'");
    second->inputs = {first->origin};
    second->Fail(Internal("handed on: out of luck"));
    completions.Enqueued(second);  // its news come before those of its input
    first->Fail(Internal("out of luck"));
    completions.Enqueued(first);
  });
  const auto outcomes = Outcomes(host, 1);
  ASSERT_EQ(outcomes.size(), 2);
  for (const wire::RunOutcome& outcome : outcomes) {
    EXPECT_HAS(outcome.status.message(), "host 'h': function 'first': out of luck");
  }
  EXPECT_HAS(host.context.store().Find(2)->error.message(), "function 'first'");
  host.engine->Stop();
}

TEST(WhereErrorsAreNotHandedOnARunWaitsForItsInputsAndFailsWithThem) {
  TestHost host;
  host.context.SetEnqueueAhead(EnqueueAhead::kAfterTransfers);
  RootCauses causes;
  Completions completions(host.context, causes);
  const auto first = Run(1, "function 'first'"), second = Run(2, "function 'second'"), third = Run(3);
  host.OnEngine([&] {
    for (const uint64_t id : {1, 2, 3}) (void)host.context.store().Insert(id, std::make_shared<store::Object>(0));
    second->inputs = {first->origin};
    third->inputs = {second->origin};
    for (const auto& run : {third, second}) completions.Enqueued(run);  // both say that they went well
    EXPECT(!second->origin->ended);
    first->Fail(Internal("out of luck"));
    completions.Enqueued(first);
  });
  const auto outcomes = Outcomes(host, 1);
  ASSERT_EQ(outcomes.size(), 3);
  for (const wire::RunOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.message(), "host 'h': function 'first': out of luck");
    EXPECT_EQ(host.context.store().Find(outcome.run)->error, outcome.status);
  }
  host.engine->Stop();
}

TEST(ARunEndsWhenAllThatIsWatchedHas) {
  NEED_PLUGIN(client);
  TestHost host(client->shared_from_this());
  RootCauses causes;
  Completions completions(host.context, causes);
  ASSERT_OK_AND_ASSIGN(const auto late, client->CreateAsyncBuffer({DType::kU8, {1}}, 0));
  ASSERT_OK_AND_ASSIGN(const pjrt::Buffer value, late->TakeBuffer());
  host.OnEngine([&] {
    auto pending = Run(1);
    Result<pjrt::EventHandle> ready = value.ReadyEvent();
    EXPECT_OK(ready.status());
    completions.Watch(pending, *ready);
    completions.Enqueued(pending);
    EXPECT_EQ(completions.Running().at(0)->AtWhat(), "function 'f'");
    EXPECT_HAS(completions.RootCauseOf(1, Internal("why"), "a gang").message(), "host 'h': a gang: why");
  });
  EXPECT(host.messages.All<wire::Done>().empty());
  late->Transfer("x", 1, 0, true, [](const Status&) {});
  EXPECT_OK(Outcomes(host, 1).at(0).status);
  host.OnEngine([&] { EXPECT(completions.Running().empty()); });
  host.engine->Stop();
}

// Ends of short runs may be reported together, but none waits for others that do not come.
TEST(OfManyShortRunsUnderWayEachEndIsReportedOnceAndInOrder) {
  NEED_PLUGIN(client);
  TestHost host(client->shared_from_this());
  RootCauses causes;
  Completions completions(host.context, causes);
  constexpr uint64_t kRuns = 3 * ReportPace::kManyUnderWay;
  std::vector<std::unique_ptr<pjrt::AsyncBuffer>> late;
  std::vector<pjrt::Buffer> values;
  for (uint64_t n = 1; n <= kRuns; ++n) {
    ASSERT_OK_AND_ASSIGN(late.emplace_back(), client->CreateAsyncBuffer({DType::kU8, {1}}, 0));
    ASSERT_OK_AND_ASSIGN(values.emplace_back(), late.back()->TakeBuffer());
  }
  host.OnEngine([&] {
    for (uint64_t n = 1; n <= kRuns; ++n) {
      // They take no time: they begin after they have ended.
      auto pending = std::make_shared<PendingRun>(PendingRun::Clock::now() + std::chrono::hours(1));
      pending->run = n;
      Result<pjrt::EventHandle> ready = values[n - 1].ReadyEvent();
      EXPECT_OK(ready.status());
      completions.Watch(pending, *ready);
      completions.Enqueued(pending);
    }
  });
  const auto reported = [&] {
    std::vector<uint64_t> runs;
    for (const wire::Done& done : host.messages.All<wire::Done>()) {
      for (const wire::RunOutcome& outcome : done.outcomes) {
        EXPECT_OK(outcome.status);
        runs.push_back(outcome.run);
      }
    }
    return runs;
  };
  uint64_t ended = 0;
  for (const uint64_t count : {uint64_t{1}, uint64_t{3}, 2 * ReportPace::kTogether, kRuns}) {
    const auto begun = PendingRun::Clock::now();
    for (; ended < count; ++ended) late[ended]->Transfer("x", 1, 0, true, [](const Status&) {});
    while (reported().size() < count && PendingRun::Clock::now() < begun + pjrt::kTimeout) std::this_thread::yield();
    const std::vector<uint64_t> runs = reported();
    ASSERT_EQ(runs.size(), count);
    for (uint64_t n = 1; n <= count; ++n) EXPECT_EQ(runs[n - 1], n);
  }
  host.OnEngine([&] { EXPECT(completions.Running().empty()); });
  host.engine->Stop();
}

}  // namespace
}  // namespace pathways::worker
