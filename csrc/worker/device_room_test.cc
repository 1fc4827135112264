// What a device takes, and that the plugin takes it without making the caller wait.
#include "csrc/worker/device_room.h"

#include <thread>

#include "csrc/base/event.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/executable.h"
#include "csrc/pjrt/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

using pjrt::Client;
using pjrt::SharedClient;

TEST(AFullDeviceRefusesAndTellsOfRoomWhenItIsHalfEmpty) {
  int told = 0;
  DeviceRoom room(2, [&] { ++told; });
  for (int i = 0; i < DeviceRoom::kMax; ++i) {
    EXPECT(!room.Refuses(1));
    room.Enter(1);
  }
  EXPECT(room.Refuses(1));
  EXPECT(!room.Refuses(0));  // nobody waits for device 1 any more
  for (int i = DeviceRoom::kMax; i > DeviceRoom::kResumeAt; --i) room.Leave(1);
  EXPECT_EQ(told, 0);
  for (int i = DeviceRoom::kResumeAt; i < DeviceRoom::kMax; ++i) room.Enter(1);
  EXPECT(room.Refuses(1));
  room.Enter(0);
  room.Leave(0);
  for (int i = DeviceRoom::kMax; i > DeviceRoom::kResumeAt + 1; --i) room.Leave(1);
  EXPECT_EQ(told, 0);
  room.Leave(1);
  EXPECT_EQ(told, 1);
  EXPECT(!room.Refuses(1));
}

TEST(NoRoomIsLostBetweenThreads) {
  auto changed = Event::Make();
  std::atomic<int> told{0};
  DeviceRoom room(1, [&] { told.fetch_add(1); });
  constexpr int kRuns = 20000;
  std::atomic<int> entered{0};
  std::thread device([&] {
    for (int left = 0; left < kRuns; ++left) {
      while (entered.load() <= left) std::this_thread::yield();
      room.Leave(0);
    }
  });
  for (int i = 0; i < kRuns; ++i) {
    const int before = told.load();
    if (room.Refuses(0)) {
      while (told.load() == before) std::this_thread::yield();
    }
    room.Enter(0);
    entered.fetch_add(1);
  }
  device.join();
}

TEST(ThePluginTakesThatManyWithoutMakingTheCallerWait) {
  NEED_PLUGIN(client);
  hlo::HloBuilder builder;
  const int64_t x = builder.Parameter(hlo::F32({2}));
  builder.Add("add", hlo::F32({2}), {x, x});
  const auto options = pjrt::ForOneDevice("");
  ASSERT_OK_AND_ASSIGN(const auto executable, client->Compile(builder.Build("doubled"), "hlo", *options));
  ASSERT_OK_AND_ASSIGN(const auto late, client->CreateAsyncBuffer({DType::kF32, {2}}, 0));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer argument, late->TakeBuffer());
  auto enqueued = Event::Make();
  std::vector<pjrt::ExecuteOutputs> outputs(DeviceRoom::kMax);
  std::thread engine([&] {
    pjrt::Buffer* const arguments[] = {&argument};
    const std::span<pjrt::Buffer* const> row(arguments);
    pjrt::ExecuteArgs args;
    args.arguments = {&row, 1};
    args.execute_device = 0;
    Status status;
    for (pjrt::ExecuteOutputs& output : outputs) {
      if (status.ok()) status = executable->Execute(args, &output);
    }
    enqueued->Set(status);
  });
  const std::optional<Status> status = enqueued->WaitFor(std::chrono::seconds(20));
  EXPECT(status.has_value());
  if (status) EXPECT_OK(*status);
  const float values[] = {1, 2};
  late->Transfer(values, sizeof values, 0, true, [](const Status&) {});
  engine.join();
  ASSERT_OK_AND_ASSIGN(const auto doubled, pjrt::Fetch(outputs.back().buffers[0][0]));
  EXPECT(doubled == (std::vector<float>{2, 4}));
}

}  // namespace
}  // namespace pathways::worker
