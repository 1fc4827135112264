#include "csrc/values/sequencer.h"

#include <future>
#include <mutex>
#include <thread>

#include "csrc/base/event.h"
#include "csrc/testing/test.h"

namespace pathways::values {
namespace {

using std::chrono::seconds;

// What happened, in order.
class Log {
 public:
  void Add(std::string what) {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::move(what));
  }
  std::vector<std::string> lines() const {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::shared_ptr<GangCall> Call(std::vector<uint32_t> devices, size_t row, Log* log, std::string name,
                               std::shared_ptr<Event> failed = nullptr, std::string signature = "f32[2]") {
  auto call = std::make_shared<GangCall>();
  call->devices = std::move(devices);
  call->row = row;
  call->signature = std::move(signature);
  call->what = name;
  call->launch = [log, name](std::span<const std::shared_ptr<GangCall>> calls) {
    log->Add("launch " + name + " of " + std::to_string(calls.size()));
  };
  call->fail = [failed](const Status& status) {
    if (failed) failed->Set(status);
  };
  return call;
}

void Submit(Sequencer& sequencer, std::vector<uint32_t> devices, Log* log, std::string what) {
  sequencer.Submit(devices, [log, what] { log->Add(what); });
}

TEST(WithoutGangsWorkRunsAtOnceOnTheCaller) {
  auto sequencer = std::make_shared<Sequencer>(seconds(60));
  std::thread::id ran_on;
  const uint32_t devices[] = {0, 1};
  sequencer->Submit(devices, [&] { ran_on = std::this_thread::get_id(); });
  EXPECT(ran_on == std::this_thread::get_id());
}

TEST(AGangIsLaunchedOnceWhenItsLastCallComes) {
  Log log;
  auto sequencer = std::make_shared<Sequencer>(seconds(60));
  sequencer->Join(Call({0, 1, 2}, 2, &log, "c"));
  sequencer->Join(Call({0, 1, 2}, 0, &log, "a"));
  EXPECT_EQ(log.lines().size(), 0u);
  sequencer->Join(Call({0, 1, 2}, 1, &log, "b"));
  EXPECT(log.lines() == std::vector<std::string>{"launch a of 3"});  // calls by row, launched by row 0
}

TEST(LaterWorkOfAWaitingDeviceIsHeldInOrderAndOthersGoOn) {
  Log log;
  auto sequencer = std::make_shared<Sequencer>(seconds(60));
  sequencer->Join(Call({0, 1}, 0, &log, "gang"));
  Submit(*sequencer, {0}, &log, "fetch 0");
  Submit(*sequencer, {2}, &log, "run 2");
  Submit(*sequencer, {0, 2}, &log, "copy 0 to 2");
  Submit(*sequencer, {2}, &log, "use copy on 2");
  EXPECT(log.lines() == std::vector<std::string>{"run 2"});
  sequencer->Join(Call({0, 1}, 1, &log, "gang"));
  EXPECT(log.lines() ==
         (std::vector<std::string>{"run 2", "launch gang of 2", "fetch 0", "copy 0 to 2", "use copy on 2"}));
}

TEST(GangsFollowEachOtherInEachDevicesOrder) {
  Log log;
  auto sequencer = std::make_shared<Sequencer>(seconds(60));
  for (int step = 0; step < 3; ++step) {  // device 0 runs ahead by three steps
    sequencer->Join(Call({0, 1}, 0, &log, "step " + std::to_string(step)));
    Submit(*sequencer, {0}, &log, "update " + std::to_string(step));
  }
  EXPECT_EQ(log.lines().size(), 0u);
  for (int step = 0; step < 3; ++step) sequencer->Join(Call({0, 1}, 1, &log, "other"));
  EXPECT(log.lines() == (std::vector<std::string>{"launch step 0 of 2", "update 0", "launch step 1 of 2", "update 1",
                                                  "launch step 2 of 2", "update 2"}));
}

TEST(AfterTheGangsWorkRunsAtOnceAgain) {
  Log log;
  auto sequencer = std::make_shared<Sequencer>(seconds(60));
  sequencer->Join(Call({0, 1}, 0, &log, "gang"));
  sequencer->Join(Call({0, 1}, 1, &log, "gang"));
  Submit(*sequencer, {0}, &log, "run");
  EXPECT(log.lines() == (std::vector<std::string>{"launch gang of 2", "run"}));
}

TEST(ReplicasThatDifferFailAllWithBothNamed) {
  Log log;
  auto sequencer = std::make_shared<Sequencer>(seconds(60));
  auto first = Event::Make(), second = Event::Make();
  sequencer->Join(Call({0, 1}, 0, &log, "a", first, "f32[2]"));
  sequencer->Join(Call({0, 1}, 1, &log, "b", second, "f32[3]"));
  ASSERT(first->IsReady() && second->IsReady());
  EXPECT_EQ(first->TryGet()->code(), Code::kInvalidArgument);
  const std::string message(second->TryGet()->message());
  EXPECT(message.find("a with f32[2]") != std::string::npos && message.find("b with f32[3]") != std::string::npos);
}

TEST(AnIncompleteGangFailsInTimeNamesWhoIsAbsentAndReleasesWhatWaited) {
  Log log;
  auto sequencer = std::make_shared<Sequencer>(std::chrono::milliseconds(50));
  auto failed = Event::Make();
  sequencer->Join(Call({0, 1, 2}, 0, &log, "f", failed));
  auto ran = std::make_shared<std::promise<void>>();
  const uint32_t device = 0;
  sequencer->Submit({&device, 1}, [ran] { ran->set_value(); });
  std::optional<Status> status = failed->WaitFor(seconds(30));
  ASSERT(status.has_value());
  EXPECT_EQ(status->code(), Code::kDeadlineExceeded);
  EXPECT(std::string(status->message()).find("no call came for device 1, 2") != std::string::npos);
  EXPECT(ran->get_future().wait_for(seconds(30)) == std::future_status::ready);
}

TEST(ManyThreadsKeepEachDevicesOrder) {
  constexpr uint32_t kDevices = 4;
  constexpr int kSteps = 200;
  auto sequencer = std::make_shared<Sequencer>(seconds(60));
  std::vector<std::vector<int>> seen(kDevices);  // by device; written only by released work, one thread at a time
  std::atomic<int> launches{0};
  std::vector<std::thread> threads;
  for (uint32_t device = 0; device < kDevices; ++device) {
    threads.emplace_back([&, device] {
      for (int step = 0; step < kSteps; ++step) {
        auto call = std::make_shared<GangCall>();
        call->devices = {0, 1, 2, 3};
        call->row = device;
        call->launch = [&launches](std::span<const std::shared_ptr<GangCall>>) { ++launches; };
        call->fail = [](const Status&) {};
        sequencer->Join(std::move(call));
        sequencer->Submit({&device, 1}, [&seen, device, step] { seen[device].push_back(step); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(launches.load(), kSteps);
  for (uint32_t device = 0; device < kDevices; ++device) {
    ASSERT_EQ(seen[device].size(), static_cast<size_t>(kSteps));
    for (int step = 0; step < kSteps; ++step) EXPECT_EQ(seen[device][static_cast<size_t>(step)], step);
  }
}

}  // namespace
}  // namespace pathways::values
