// Custom calls against a real plugin.
#include "csrc/pjrt/custom_calls.h"

#include <chrono>
#include <string>

#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

using Clock = std::chrono::steady_clock;

std::string Waiting(const std::string& attributes) {
  return R"(module @waiting {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = stablehlo.custom_call @pathways.wait(%x) {api_version = 4 : i32, backend_config = {)" +
         attributes + R"(}} : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
})";
}

Result<std::unique_ptr<Executable>> Compile(Client* client, const std::string& code) {
  PW_RETURN_IF_ERROR(RegisterCustomCalls(*client->api(), "cpu"));
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneDevice(""));
  return client->Compile(code, "mlir", options);
}

// Runs once on each of `devices`, all at the same time; returns the first error.
Status RunOnAll(Client* client, const Executable& executable, const std::vector<int>& devices) {
  std::vector<ExecuteOutputs> outputs(devices.size());
  std::vector<Buffer> inputs;
  for (int device : devices) {
    PW_ASSIGN_OR_RETURN(Buffer input, Put(client, {1, 2, 3, 4}, device));
    inputs.push_back(std::move(input));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    Buffer* const input = &inputs[i];
    const std::span<Buffer* const> row(&input, 1);
    ExecuteArgs args;
    args.arguments = {&row, 1};
    args.execute_device = devices[i];
    PW_RETURN_IF_ERROR(executable.Execute(args, &outputs[i]));
  }
  for (ExecuteOutputs& output : outputs) {
    PW_ASSIGN_OR_RETURN(const std::vector<float> values, Fetch(output.buffers.at(0).at(0)));
    if (values != std::vector<float>{1, 2, 3, 4}) return Internal("a wait must give its operand");
  }
  return OkStatus();
}

double SecondsOf(const std::function<Status()>& work, Status* status) {
  const auto start = Clock::now();
  *status = work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(AWaitTakesItsTimeAndGivesItsOperand) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  auto executable = Compile(client, Waiting("microseconds = 30000 : i64"));
  ASSERT_OK(executable);
  Status status;
  EXPECT(SecondsOf([&] { return RunOnAll(client, **executable, {0}); }, &status) >= 0.030);
  EXPECT_OK(status);
}

TEST(WaitsOnOneDeviceTakeTurns) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  auto executable = Compile(client, Waiting("microseconds = 30000 : i64"));
  ASSERT_OK(executable);
  Status status;
  EXPECT(SecondsOf([&] { return RunOnAll(client, **executable, {1, 1, 1}); }, &status) >= 0.090);
  EXPECT_OK(status);
}

TEST(AWaitWithoutADurationIsRefused) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  for (const char* attributes : {"", "microseconds = -1 : i64", "microseconds = 1.5 : f32"}) {
    auto executable = Compile(client, Waiting(attributes));
    ASSERT_OK(executable);
    const Status status = RunOnAll(client, **executable, {0});
    EXPECT_HAS(status.ToString(), "needs an attribute `microseconds` from 0");
  }
}

TEST(OtherPlatformsAreLeftAlone) {
  NEED_PLUGIN(client);
  EXPECT_OK(RegisterCustomCalls(*client->api(), "tpu"));
}

}  // namespace
}  // namespace pathways::pjrt
