#include "csrc/controller/memory_requests.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

TEST(ARunAsksForItsResultsAndScratchOnEachOfItsDevices) {
  FunctionState function;
  wire::Registered answer;
  answer.outputs = {{DType::kF32, {10}}, {DType::kF32, {1}}};
  answer.temp_bytes = 7;
  KeepCosts(answer, function);
  scheduler::GangShape shape;
  shape.Add(0, 0, 0);
  shape.Add(1, 0, 1);
  wire::Run run;
  run.run = 5;
  run.first_output = 20;
  run.output_count = 2;
  run.devices = {0, 1};
  run.arguments = {9, wire::kAssembledBit};
  run.assembled = {11, 0, 12, 0};
  run.donated = {1};
  MemoryRequest request;
  RequestRun(3, run, function, shape, request);
  EXPECT(request.is_run);
  EXPECT_EQ(request.hosts, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(request.devices, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(request.arguments, (std::vector<uint64_t>{9, 11, 12}));
  EXPECT_EQ(request.donated, (std::vector<uint64_t>{11, 12}));
  ASSERT_EQ(request.made.size(), 2u);
  EXPECT_EQ(request.made[0].buffer, 20u);
  EXPECT_EQ(request.made[0].bytes, 40);
  EXPECT_EQ(request.made[1].buffer, 21u);
  EXPECT_EQ(request.made[1].device_count, 2u);
  ASSERT_EQ(request.scratch.size(), 2u);
  EXPECT_EQ(request.scratch[1].bytes, 7);
}

TEST(AProgramCostsWhatItsPlansCostTogether) {
  ProgramState program;
  for (const uint32_t host : {0u, 1u}) {
    wire::RegisterPlan plan;
    wire::PlanSlot slot;
    slot.type = {DType::kF32, {25}};
    slot.devices = {host};
    plan.slots = {slot};
    plan.outputs = {{0, 2}};
    KeepCosts(plan, program, program.hosts[host]);
  }
  wire::PlanReady answer;
  answer.peak_bytes = {150};
  answer.result_bytes = {100};
  wire::HostDescription host;
  host.first_device = 1;
  host.devices.resize(1);
  KeepCosts(answer, host, program.hosts[1]);
  wire::RunProgram run;
  run.first_output = 30;
  MemoryRequest request;
  RequestProgram(3, run, program, request);
  ASSERT_EQ(request.made.size(), 2u);
  EXPECT_EQ(request.made[0].buffer, 30u);
  EXPECT_EQ(request.made[1].buffer, 30u);  // the other host's part of it
  EXPECT_EQ(request.devices.at(request.made[1].first_device), 1u);
  ASSERT_EQ(request.scratch.size(), 1u);  // beyond the results
  EXPECT_EQ(request.scratch[0].device, 1u);
  EXPECT_EQ(request.scratch[0].bytes, 50);
}

}  // namespace
}  // namespace pathways::controller
