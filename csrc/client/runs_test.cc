// What is under way, what bounds it, and what ends it.
#include "csrc/client/runs.h"

#include <thread>

#include "csrc/base/waits.h"
#include "csrc/client/test_support.h"
#include "csrc/client/waiting.h"
#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

SessionOptions WindowOf(uint32_t runs) {
  SessionOptions options;
  options.window_runs = runs;
  return options;
}

struct SomeRuns : TestCore {
  explicit SomeRuns(uint32_t window = 256) : TestCore(WindowOf(window)) {}

  std::shared_ptr<Event> Begin(uint64_t run, std::vector<uint32_t> hosts, bool waits = false) {
    auto done = Event::Make();
    auto all = hosts.size() > 1 ? std::make_shared<const std::vector<uint32_t>>(hosts) : nullptr;
    entered = runs.Enter(run, {done, hosts[0], std::make_shared<const std::string>("function 'f'"), all}, waits);
    return done;
  }
  void Finish(uint64_t run) {
    wire::Done done;
    done.outcomes.emplace_back();
    done.outcomes.back().run = run;
    runs.OnDone(done);
  }

  Waiting waiting;
  Functions functions{core, waiting};
  Runs runs{core, functions};
  Status entered;  // of the latest run
};

TEST(AFullWindowHoldsTheNextRunUntilOneEnds) {
  SomeRuns c(1);
  const auto first = c.Begin(1, {0}, true);
  const auto other = c.Begin(2, {0});  // does not wait
  std::atomic<bool> entered{false};
  std::thread next([&] {
    c.Begin(3, {0}, true);
    entered = true;
  });
  c.Finish(1);
  EXPECT_OK(*first->TryGet());
  EXPECT(!entered);  // one is left
  c.Finish(2);
  next.join();
  EXPECT(entered);
}

TEST(AFullWindowOpensOnceMoreThanAQuarterOfItIsFree) {
  SomeRuns c(8);
  for (uint64_t run = 1; run <= 8; ++run) c.Begin(run, {0}, true);
  std::atomic<bool> entered{false};
  std::thread next([&] {
    c.Begin(9, {0}, true);
    entered = true;
  });
  const auto waits = [&] {
    for (const waits::Wait& wait : waits::UnderWay()) {
      if (wait.what.find("earlier runs") != std::string::npos) return true;
    }
    return false;
  };
  while (!waits()) std::this_thread::yield();
  c.Finish(1);
  c.Finish(2);
  EXPECT(!entered);
  c.Finish(3);
  next.join();
  EXPECT(entered);
}

TEST(AWindowIsOpenOnceTheControllerIsLost) {
  SomeRuns c(0);
  {
    std::lock_guard lock(c.core.mutex);
    c.core.controller_lost = Cancelled("no controller");
  }
  c.runs.AwaitWindow();
  c.Begin(1, {0}, true);
  EXPECT_EQ(c.entered.message(), "no controller");
  EXPECT_EQ(c.runs.Drain(std::chrono::milliseconds(0)).code(), Code::kCancelled);
}

TEST(ALostHostEndsTheRunsThatNeedIt) {
  SomeRuns c;
  const auto there = c.Begin(1, {1}), elsewhere = c.Begin(2, {0}), both = c.Begin(3, {0, 1});
  c.Lose(c.runs, {1, Unavailable("host 'h1' is lost")});
  EXPECT_EQ(there->TryGet()->message(), "function 'f' did not finish: host 'h1' is lost");
  EXPECT_EQ(both->TryGet()->code(), Code::kUnavailable);
  EXPECT(!elsewhere->TryGet());
  EXPECT_EQ(c.runs.Drain(std::chrono::milliseconds(1)).message(),
            "expected all runs to finish within 1 ms, got 1 unfinished on h0");
  c.Lose(c.runs, {.host = std::nullopt, .reason = Cancelled("the session is closed"), .closed = true});
  EXPECT_EQ(elsewhere->TryGet()->message(), "the session is closed");
  EXPECT_OK(c.runs.Drain(std::chrono::milliseconds(0)));
}

TEST(ARunThatNeedsALostHostIsNotEntered) {
  SomeRuns c;
  {
    std::lock_guard lock(c.core.mutex);
    c.core.hosts.Lose(1, "its connection closed");
  }
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{1}, std::vector<uint32_t>{0, 1}}) {
    c.Begin(1, hosts);
    EXPECT_EQ(c.entered.code(), Code::kUnavailable);
    EXPECT(c.entered.message().find("function 'f' cannot run: ") == 0);
  }
  c.Begin(2, {0});
  EXPECT_OK(c.entered);
  c.Finish(2);
  EXPECT_OK(c.runs.Drain(std::chrono::milliseconds(0)));
}

TEST(TheFirstFailureIsGivenOnce) {
  SomeRuns c;
  c.Begin(1, {0}), c.Begin(2, {1});
  EXPECT_OK(c.runs.TakeFailure());
  c.Lose(c.runs, {0, Unavailable("host 'h0' is lost")});
  c.Lose(c.runs, {1, Unavailable("host 'h1' is lost")});
  EXPECT_EQ(c.runs.TakeFailure().message(), "function 'f' did not finish: host 'h0' is lost");
  EXPECT_OK(c.runs.TakeFailure());
  c.Begin(3, {0});
  c.Lose(c.runs, {.host = std::nullopt, .reason = Cancelled("the session is closed"), .closed = true});
  EXPECT_OK(c.runs.TakeFailure());
}

TEST(ARunThatCannotBeSentEnds) {
  SomeRuns c;
  wire::RunInPlace message;
  message.run = 1;
  message.arguments.resize(wire::kMaxBodyBytes / sizeof(uint64_t));
  const auto done = c.Begin(1, {0});
  EXPECT_EQ(c.runs.Send(message, done).code(), Code::kInvalidArgument);
  EXPECT_EQ(done->TryGet()->code(), Code::kInvalidArgument);
  EXPECT_OK(c.runs.Drain(std::chrono::milliseconds(0)));
}

TEST(LargeReleasesGoBeforeARun) {
  SomeRuns c;
  wire::RunInPlace message;
  {
    std::lock_guard lock(c.core.mutex);
    c.core.releases.Free(7, 8, {0}, c.core.hosts);
  }
  EXPECT_OK(c.runs.Send(message, c.Begin(0, {0})));
  EXPECT(c.wire->All<wire::Free>().empty());
  {
    std::lock_guard lock(c.core.mutex);
    c.core.releases.Free(8, Releases::kMaxKeptBytes, {0}, c.core.hosts);
  }
  EXPECT_OK(c.runs.Send(message, c.Begin(0, {0})));
  EXPECT(c.wire->Last<wire::Free>().buffers == (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(wire::TypeOf(c.wire->sent.back()), wire::Type::kRunInPlace);
}

}  // namespace
}  // namespace pathways::client
