// What the probe finds with plugins of several kinds, made out of the cpu plugin.
#include "csrc/worker/enqueue_probe.h"

#include <algorithm>
#include <cstring>

#include "csrc/pjrt/test_support.h"

namespace pathways::worker {
namespace {

// The plugin under test and a table in which functions can be replaced. Lives as long as the process.
struct ChangedPlugin {
  std::shared_ptr<pjrt::Api> api;
  PJRT_Api table{};
};

ChangedPlugin& TheChangedPlugin() {
  static auto* plugin = new ChangedPlugin();
  return *plugin;
}

PJRT_Error* ExecuteThatWaits(PJRT_LoadedExecutable_Execute_Args* args) {
  PJRT_Buffer_ReadyEvent_Args ready{};
  ready.buffer = args->argument_lists[0][0];
  const std::shared_ptr<pjrt::Api>& api = TheChangedPlugin().api;
  if (api->Call<&PJRT_Api::PJRT_Buffer_ReadyEvent>(&ready).ok()) (void)pjrt::EventHandle(api, ready.event).Await();
  return api->table()->PJRT_LoadedExecutable_Execute(args);
}

PJRT_Error* SetErrorThatFills(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args* args) {
  static constexpr std::array<float, 4> kGarbage = {1, 2, 3, 4};
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args garbage{};
  garbage.transfer_manager = args->transfer_manager;
  garbage.data = kGarbage.data();
  garbage.transfer_size = sizeof kGarbage;
  garbage.is_last_transfer = true;
  const std::shared_ptr<pjrt::Api>& api = TheChangedPlugin().api;
  EXPECT_OK(api->Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_TransferData>(&garbage));
  EXPECT_OK(pjrt::EventHandle(api, garbage.done_with_h2d_transfer).Await());
  return nullptr;
}

PJRT_Error* SetErrorThatIsIgnored(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args*) { return nullptr; }

Result<ProbedEnqueue> ProbeOf(void (*change)(PJRT_Api& table), std::chrono::milliseconds patience = kEventPatience) {
  ChangedPlugin& plugin = TheChangedPlugin();
  PW_ASSIGN_OR_RETURN(plugin.api, pjrt::Api::Load(testing::PluginPath()));
  const PJRT_Api* const table = plugin.api->table();
  std::memcpy(&plugin.table, table, std::min(table->struct_size, sizeof(PJRT_Api)));
  plugin.table.struct_size = std::min(table->struct_size, sizeof(PJRT_Api));
  change(plugin.table);
  PW_ASSIGN_OR_RETURN(const auto api, pjrt::Api::Wrap(&plugin.table, "a changed plugin"));
  PW_ASSIGN_OR_RETURN(const auto client, pjrt::Client::Create(api, pjrt::ClientOptions()));
  return ProbeEnqueue(client, patience);
}

TEST(APluginThatHandsErrorsOnIsFound) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  ASSERT_OK_AND_ASSIGN(const ProbedEnqueue probed, ProbeEnqueue(client->shared_from_this()));
  EXPECT(!probed.waits);
  EXPECT(probed.hands_errors_on);
  EXPECT(probed.ends_waits);
}

TEST(APluginWhoseExecuteWaitsIsFound) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  ASSERT_OK_AND_ASSIGN(const ProbedEnqueue probed,
                       ProbeOf([](PJRT_Api& table) { table.PJRT_LoadedExecutable_Execute = &ExecuteThatWaits; }));
  EXPECT(probed.waits);
}

// Whoever waits for the buffer is told nevertheless.
TEST(APluginThatLosesErrorsHandsNoneOn) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  ASSERT_OK_AND_ASSIGN(const ProbedEnqueue probed, ProbeOf([](PJRT_Api& table) {
                         table.PJRT_AsyncHostToDeviceTransferManager_SetBufferError = &SetErrorThatFills;
                       }));
  EXPECT(!probed.waits);
  EXPECT(probed.ends_waits);
  EXPECT(!probed.hands_errors_on);
}

TEST(APluginThatLeavesWhoeverWaitsWaitingIsFound) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  ASSERT_OK_AND_ASSIGN(
      const ProbedEnqueue probed,
      ProbeOf(
          [](PJRT_Api& table) { table.PJRT_AsyncHostToDeviceTransferManager_SetBufferError = &SetErrorThatIsIgnored; },
          std::chrono::milliseconds(50)));
  EXPECT(!probed.ends_waits);
}

}  // namespace
}  // namespace pathways::worker
