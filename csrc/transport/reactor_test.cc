// The reactor's tasks, timers and the promises of Add, Remove and Stop.
#include "csrc/transport/reactor.h"

#include <thread>

#include "csrc/transport/test_support.h"

namespace pathways::transport::testing {
namespace {

using std::chrono::milliseconds;

TEST(TasksRunInOrderOnTheThread) {
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "tasks"}));
  std::vector<int> seen;
  Counter ran;
  EXPECT(!reactor->OnThread());
  for (int i = 0; i < 1000; ++i) {
    reactor->Post([&, i] {
      EXPECT(reactor->OnThread());
      seen.push_back(i);
      ran.Add();
    });
  }
  ASSERT(ran.WaitFor(1000));
  reactor->Stop();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i);
}

// Posts race with the moment of falling asleep; each round waits for its task.
TEST(PostAlwaysWakes) {
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "wake"}));
  Counter ran;
  for (uint64_t i = 1; i <= 20000; ++i) {
    reactor->Post([&] { ran.Add(); });
    ASSERT(ran.WaitFor(i));
  }
  ASSERT_OK_AND_ASSIGN(auto spinning, Reactor::Start({.name = "spin", .spin = std::chrono::microseconds(30)}));
  Counter spun;
  for (uint64_t i = 1; i <= 2000; ++i) {
    spinning->Post([&] { spun.Add(); });
    ASSERT(spun.WaitFor(i));
  }
}

TEST(TimersFireRepeatAndStop) {
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "timers"}));
  Counter once, often, never;
  const auto start = Reactor::Clock::now();
  reactor->AddTimer(milliseconds(20), milliseconds(0), [&] { once.Add(); });
  Reactor::TimerId id = 0;

  std::mutex mutex;
  std::unique_lock lock(mutex);
  id = reactor->AddTimer(milliseconds(1), milliseconds(1), [&] {
    std::lock_guard wait_for_id(mutex);
    often.Add();
    if (often.value() == 5) reactor->CancelTimer(id);  // from inside itself
  });
  lock.unlock();
  const auto cancelled = reactor->AddTimer(milliseconds(5), milliseconds(0), [&] { never.Add(); });
  reactor->CancelTimer(cancelled);
  ASSERT(once.WaitFor(1));
  EXPECT(Reactor::Clock::now() - start >= milliseconds(20));
  ASSERT(often.WaitFor(5));
  Counter later;
  reactor->AddTimer(milliseconds(30), milliseconds(0), [&] { later.Add(); });
  ASSERT(later.WaitFor(1));
  EXPECT_EQ(often.value(), 5);
  EXPECT_EQ(never.value(), 0);
}

TEST(StopDropsWhatWasNotRun) {
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "stop"}));
  auto held = std::make_shared<int>(1);
  reactor->AddTimer(std::chrono::hours(1), milliseconds(0), [held] {});
  reactor->Stop();
  reactor->Post([held] {});
  EXPECT_EQ(held.use_count(), 1);
  reactor->Stop();
}

TEST(RemoveWaitsForTheCallback) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  ASSERT_OK_AND_ASSIGN(auto router, Socket::Open({.kind = SocketKind::kRouter}));
  ASSERT_OK_AND_ASSIGN(auto dealer, Socket::Open({.kind = SocketKind::kDealer}));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "remove"}));
  ASSERT_OK_AND_ASSIGN(std::string bound, router->Bind(directory.Ipc("r")));
  ASSERT_OK(dealer->Connect(bound));
  Counter entered, proceed;
  std::atomic<int> inside{0};
  Handler handler([&](Socket&, std::string_view, Frames&) {
    ++inside;
    entered.Add();
    EXPECT(proceed.WaitFor(1));
    --inside;
  });
  ASSERT_OK(reactor->Add(router, &handler));
  EXPECT_EQ(reactor->Add(router, &handler).code(), Code::kFailedPrecondition);
  for (int i = 0; i < 10; ++i) EXPECT_OK(dealer->Send("", Frame("x")));
  ASSERT(entered.WaitFor(1));
  std::thread release([&] { proceed.Add(); });  // before, during or after the call below
  reactor->Remove(*router);
  EXPECT_EQ(inside.load(), 0);
  const uint64_t entered_before = entered.value();
  release.join();
  // Messages that came meanwhile give no new signal to the next reactor, and are delivered all the same.
  Counter rest;
  Handler other([&](Socket& s, std::string_view, Frames&) {
    rest.Add();
    if (rest.value() == 3) s.Close();  // from its own callback
  });
  for (int i = 0; i < 10; ++i) EXPECT_OK(dealer->Send("", Frame("y")));
  ASSERT_OK_AND_ASSIGN(auto second, Reactor::Start({.name = "second"}));
  ASSERT_OK(second->Add(router, &other));
  ASSERT(rest.WaitFor(3));
  Counter passed;
  second->Post([&] { passed.Add(); });
  ASSERT(passed.WaitFor(1));
  EXPECT_EQ(rest.value(), 3);
  EXPECT_EQ(entered.value(), entered_before);
  dealer->Close();
}

// One busy socket must not keep another, or tasks, from being served.
TEST(BusySocketDoesNotStarveOthers) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  ASSERT_OK_AND_ASSIGN(auto busy, Socket::Open({.kind = SocketKind::kRouter}));
  ASSERT_OK_AND_ASSIGN(auto quiet, Socket::Open({.kind = SocketKind::kRouter}));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "fair", .batch = 8}));
  Counter heard;
  // The busy one sends itself a message for each that it gets, so that it is never empty.
  Handler again([&](Socket& s, std::string_view peer, Frames&) {
    (void)s.Send(peer, Frame("more"));  // fails once the other end is closed
  });
  Handler listen([&](Socket&, std::string_view, Frames&) { heard.Add(); });
  ASSERT_OK(reactor->Add(busy, &again));
  ASSERT_OK(reactor->Add(quiet, &listen));
  ASSERT_OK_AND_ASSIGN(std::string busy_at, busy->Bind(directory.Ipc("busy")));
  ASSERT_OK_AND_ASSIGN(std::string quiet_at, quiet->Bind(directory.Ipc("quiet")));
  ASSERT_OK_AND_ASSIGN(auto partner, Socket::Open({.kind = SocketKind::kDealer}));
  ASSERT_OK_AND_ASSIGN(auto partner_reactor, Reactor::Start({.name = "partner"}));
  Handler bounce([&](Socket& s, std::string_view, Frames&) { (void)s.Send("", Frame("more")); });
  ASSERT_OK(partner_reactor->Add(partner, &bounce));
  ASSERT_OK(partner->Connect(busy_at));
  for (int i = 0; i < 1000; ++i) EXPECT_OK(partner->Send("", Frame("more")));
  ASSERT_OK_AND_ASSIGN(auto caller, Socket::Open({.kind = SocketKind::kDealer}));
  ASSERT_OK(caller->Connect(quiet_at));
  for (uint64_t i = 1; i <= 20; ++i) {
    EXPECT_OK(caller->Send("", Frame("x")));
    ASSERT(heard.WaitFor(i));
    Counter task;
    reactor->Post([&] { task.Add(); });
    ASSERT(task.WaitFor(1));
  }
  partner->Close();
  caller->Close();
  busy->Close();
  quiet->Close();
}

}  // namespace
}  // namespace pathways::transport::testing
