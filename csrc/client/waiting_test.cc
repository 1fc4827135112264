// Which wait says what, and which time counts.
#include "csrc/client/waiting.h"

#include <algorithm>
#include <thread>

#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

// Runs `wait` on a thread until waits::UnderWay names `what`, then `end` lets it end.
template <typename Wait, typename End>
void ExpectToWaitFor(const std::string& what, Wait wait, End end) {
  std::thread waiter(wait);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool found = false;
  while (!found && std::chrono::steady_clock::now() < deadline) {
    const std::vector<waits::Wait> under_way = waits::UnderWay();
    found = std::any_of(under_way.begin(), under_way.end(), [&](const waits::Wait& one) { return one.what == what; });
    std::this_thread::yield();
  }
  EXPECT(found);
  end();
  waiter.join();
}

TEST(WaitsSayWhatTheyAreForAndTheUsersCount) {
  Waiting waiting;
  const auto run = Event::Make(), compile = Event::Make(), sharding = Event::Make();
  ExpectToWaitFor(
      "what was submitted to be done", [&] { EXPECT_EQ(waiting.Wait(run).message(), "it failed"); },
      [&] { run->Set(Internal("it failed")); });
  EXPECT_EQ(waiting.stats().waits, 1u);
  ExpectToWaitFor(
      "function 'f' to be compiled", [&] { EXPECT_OK(waiting.WaitForCompile(compile, "function 'f'")); },
      [&] { compile->Set(OkStatus()); });
  EXPECT_EQ(waiting.stats().waits, 2u);
  ExpectToWaitFor(
      "function 'g' to be compiled", [&] { EXPECT_OK(waiting.WaitForCompile(sharding, "function 'g'", false)); },
      [&] { sharding->Set(OkStatus()); });
  EXPECT_OK(waiting.WaitForCompile(compile, "function 'f'"));  // no wait
  EXPECT_EQ(waiting.stats().waits, 2u);
  EXPECT(waiting.stats().seconds > 0);
}

TEST(AWaitForRoomSaysWhatItIsFor) {
  std::mutex mutex;
  std::condition_variable changed;
  bool room = false;
  ExpectToWaitFor(
      "earlier runs",
      [&] {
        UniqueLock lock(mutex);
        WaitForRoom(lock, changed, "earlier runs", [&] { return room; });
        EXPECT(room);
      },
      [&] {
        {
          std::lock_guard lock(mutex);
          room = true;
        }
        changed.notify_all();
      });
}

TEST(AWaitEndsAtItsDeadline) {
  const Event event;
  const interrupt::Watch watch;
  const auto now = std::chrono::steady_clock::now();
  EXPECT(!AwaitUnlessInterrupted(event, watch, "nothing", now));
  EXPECT(!AwaitUnlessInterrupted(event, watch, "nothing", now + std::chrono::milliseconds(1)));
}

}  // namespace
}  // namespace pathways::client
