// Modules with collectives, as a real plugin reads and partitions them.
#include "csrc/hlo/collective_check.h"

#include "csrc/hlo/test_hlo.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/module_dump.h"
#include "csrc/pjrt/partition.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

TEST(AnAllReduceOfSeveralOperandsIsPartitioned) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  // XLA's partitioner ends the process at the module that this was.
  ASSERT_OK_AND_ASSIGN(const std::string split, hlo::SplitAllReduces(hlo::TwoReducedAtOnce()));
  const Partitioner partitioner(client->api(), "");
  ASSERT_OK_AND_ASSIGN(const ShardProgram shard, partitioner.Partition(split, "hlo", "", 2));
  EXPECT_EQ(shard.info.results.size(), size_t{2});
  EXPECT_EQ(shard.info.results[1].ToString(), "f32[4]");
}

TEST(WhatThePluginReadsIsKnown) {
  NEED_PLUGIN(client);
  constexpr std::string_view kSum = R"(module @sum {
    func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y = "stablehlo.all_reduce"(%x) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }
  })";
  EXPECT(hlo::MlirMayMeetDevices(kSum));
  ASSERT_OK_AND_ASSIGN(const std::string options, ForOneDevice(""));
  ASSERT_OK_AND_ASSIGN(const auto read, CompileAndDump(client, kSum, "mlir", options, Stage::kRead, ""));
  ASSERT_EQ(read.has_value(), true);
  EXPECT_HAS(hlo::CheckCollectives(*read, 1, 1).ToString(), "all-reduce");
  EXPECT_OK(hlo::CheckCollectives(*read, 2, 1));
}

}  // namespace
}  // namespace pathways::pjrt
