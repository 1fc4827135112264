// The gate over executions of a real plugin: one gang at a time on each device, in the order of launching.
#include "csrc/worker/gang_gate.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/hlo/test_hlo.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/executable.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::worker {
namespace {

using pjrt::Client;
using pjrt::kTimeout;
using pjrt::SharedClient;

class Recorder : public GangTurns {
 public:
  void Begin(int device, const GangPtr& gang, uint32_t shard) override {
    Note("begin " + std::to_string(gang->launch.sequence) + " shard " + std::to_string(shard) + " on " +
         std::to_string(device));
  }
  void End(int device) override { Note("end on " + std::to_string(device)); }
  void Failed(const GangPtr& gang, const Status& status) override {
    Note("failed " + std::to_string(gang->launch.sequence) + ": " + std::string(status.message()));
  }
  // Waits for so many notes.
  std::vector<std::string> Take(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTimeout, [&] { return notes_.size() >= count; });
    return notes_;
  }

 private:
  void Note(std::string text) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(std::move(text));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
};

// x + x, held back by a ticket.
class GangLauncher {
 public:
  GangLauncher(Client* client, GangGate* gate) : client_(client), gate_(gate) {
    hlo::HloBuilder builder;
    const int64_t x = builder.Parameter(hlo::F32({2}));
    builder.Parameter(hlo::ShapeProto(8, {}));  // u32
    builder.Add("add", hlo::F32({2}), {x, x});
    auto options = pjrt::ForOneDevice("");
    auto executable = client->Compile(builder.Build("doubled"), "hlo", *options);
    EXPECT_OK(executable.status());
    executable_ = *std::move(executable);
  }

  Result<pjrt::Buffer> Launch(uint64_t launch, uint32_t shard, int device, pjrt::Buffer argument) {
    PW_ASSIGN_OR_RETURN(GangGate::Ticket ticket, gate_->Issue(device));
    pjrt::Buffer* const arguments[] = {&argument, ticket.buffer()};
    const std::span<pjrt::Buffer* const> row(arguments);
    pjrt::ExecuteArgs args;
    args.arguments = {&row, 1};
    args.execute_device = device;
    pjrt::ExecuteOutputs outputs;
    PW_RETURN_IF_ERROR(executable_->Execute(args, &outputs));
    auto gang = std::make_shared<collective::Gang>();
    gang->launch.sequence = launch;
    gate_->Enter(device, std::move(ticket), std::move(gang), shard, outputs.done[0]);
    return std::move(outputs.buffers[0][0]);
  }

 private:
  Client* const client_;
  GangGate* const gate_;
  std::unique_ptr<pjrt::Executable> executable_;
};

TEST(OneGangAtATimeOnADeviceInTheOrderOfLaunching) {
  NEED_PLUGIN(client);
  Recorder recorder;
  GangGate gate(client->shared_from_this(), &recorder);
  GangLauncher launcher(client, &gate);
  // The first waits for its argument, and with it all the others.
  ASSERT_OK_AND_ASSIGN(const auto late, client->CreateAsyncBuffer({DType::kF32, {2}}, 1));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer late_buffer, late->TakeBuffer());
  std::vector<pjrt::Buffer> results;
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer first, launcher.Launch(1, 7, 1, std::move(late_buffer)));
  results.push_back(std::move(first));
  for (uint64_t launch = 2; launch <= 20; ++launch) {
    ASSERT_OK_AND_ASSIGN(pjrt::Buffer argument, pjrt::Put(client, {float(launch), 0}, 1));
    ASSERT_OK_AND_ASSIGN(pjrt::Buffer result, launcher.Launch(launch, 7, 1, std::move(argument)));
    results.push_back(std::move(result));
  }
  // Another device does not wait for this one.
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer elsewhere, pjrt::Put(client, {3, 4}, 2));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer there, launcher.Launch(21, 8, 2, std::move(elsewhere)));
  ASSERT_OK_AND_ASSIGN(const auto doubled, pjrt::Fetch(there));
  EXPECT(doubled == (std::vector<float>{6, 8}));
  const std::vector<std::string> before = recorder.Take(3);
  EXPECT_EQ(before.size(), size_t{3});
  EXPECT_EQ(before[0], std::string("begin 1 shard 7 on 1"));

  const float values[] = {1, 0};
  late->Transfer(values, sizeof values, 0, true, [](const Status&) {});
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const auto value, pjrt::Fetch(results[i]));
    EXPECT(value == (std::vector<float>{2.0f * static_cast<float>(i + 1), 0}));
  }
  std::vector<std::string> here;
  for (const std::string& note : recorder.Take(42)) {
    if (note.ends_with("on 1")) here.push_back(note);
  }
  ASSERT_EQ(here.size(), size_t{40});
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(here[2 * i], "begin " + std::to_string(i + 1) + " shard 7 on 1");
    EXPECT_EQ(here[2 * i + 1], std::string("end on 1"));
  }
}

TEST(AFailedGangIsToldAndTheNextGoesOn) {
  NEED_PLUGIN(client);
  Recorder recorder;
  GangGate gate(client->shared_from_this(), &recorder);
  GangLauncher launcher(client, &gate);
  ASSERT_OK_AND_ASSIGN(const auto late, client->CreateAsyncBuffer({DType::kF32, {2}}, 0));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer late_buffer, late->TakeBuffer());
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer bad, launcher.Launch(1, 0, 0, std::move(late_buffer)));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer argument, pjrt::Put(client, {1, 2}, 0));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer good, launcher.Launch(2, 0, 0, std::move(argument)));
  ASSERT_OK(late->SetError(Unavailable("its host is lost")));
  ASSERT_OK_AND_ASSIGN(const auto value, pjrt::Fetch(good));
  EXPECT(value == (std::vector<float>{2, 4}));
  const std::vector<std::string> notes = recorder.Take(5);
  ASSERT_EQ(notes.size(), size_t{5});
  EXPECT_EQ(notes[0], std::string("begin 1 shard 0 on 0"));
  EXPECT_EQ(notes[1], std::string("end on 0"));
  EXPECT_HAS(notes[2], "failed 1: ");
  EXPECT_HAS(notes[2], "its host is lost");
  EXPECT_EQ(notes[3], std::string("begin 2 shard 0 on 0"));
  EXPECT_EQ(notes[4], std::string("end on 0"));
}

TEST(AGangThatHadFailedBeforeItEnteredTakesItsTurnAndEndsIt) {
  NEED_PLUGIN(client);
  Recorder recorder;
  GangGate gate(client->shared_from_this(), &recorder);
  GangLauncher launcher(client, &gate);
  ASSERT_OK_AND_ASSIGN(const auto async, client->CreateAsyncBuffer({DType::kF32, {2}}, 0));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer broken, async->TakeBuffer());
  ASSERT_OK(async->SetError(Unavailable("its host is lost")));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer bad, launcher.Launch(1, 0, 0, std::move(broken)));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer argument, pjrt::Put(client, {1, 2}, 0));
  ASSERT_OK_AND_ASSIGN(pjrt::Buffer good, launcher.Launch(2, 0, 0, std::move(argument)));
  ASSERT_OK(pjrt::Fetch(good).status());
  const std::vector<std::string> notes = recorder.Take(5);
  ASSERT_EQ(notes.size(), size_t{5});
  EXPECT_EQ(notes[0], std::string("begin 1 shard 0 on 0"));
  EXPECT_EQ(notes[1], std::string("end on 0"));
  EXPECT_EQ(notes[3], std::string("begin 2 shard 0 on 0"));
  EXPECT_EQ(notes[4], std::string("end on 0"));
}

}  // namespace
}  // namespace pathways::worker
