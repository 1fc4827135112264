// Modules partitioned by the CPU plugin; the shards' programs run on one device each.
#include "csrc/pjrt/partition.h"

#include <stdlib.h>

#include <filesystem>

#include "csrc/hlo/edit.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

const hlo::ShardingBytes kCopied = std::string();

// An empty folder that goes with the test.
class Folder {
 public:
  Folder() { EXPECT(mkdtemp(path_) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  char path_[32] = "/tmp/pw-test-XXXXXX";
};

// x + x with the given layouts; `elements` in all.
Result<std::string> Doubled(int64_t elements, const hlo::ShardingBytes& parameter, const hlo::ShardingBytes& result) {
  hlo::HloBuilder builder;
  const int64_t x = builder.Parameter(hlo::F32({elements}));
  builder.Add("add", hlo::F32({elements}), {x, x});
  return hlo::AnnotateShardings(builder.Build("doubled"), {{parameter}}, {{result}});
}

Result<std::vector<float>> RunOnce(Client* client, const std::string& module, const std::vector<float>& argument,
                                   int device) {
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneDevice(""));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(module, "hlo", options));
  PW_ASSIGN_OR_RETURN(Buffer buffer, Put(client, argument, device));
  Buffer* const arguments[] = {&buffer};
  const std::span<Buffer* const> row(arguments);
  ExecuteArgs args;
  args.arguments = {&row, 1};
  args.execute_device = device;
  ExecuteOutputs outputs;
  PW_RETURN_IF_ERROR(executable->Execute(args, &outputs));
  return Fetch(outputs.buffers[0][0]);
}

TEST(OneShardOfAnElementwiseComputation) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  const Folder scratch;
  // More partitions than the client of the tests has devices.
  ASSERT_OK_AND_ASSIGN(const std::string module, Doubled(16, hlo::SplitSharding(8), hlo::SplitSharding(8)));
  const Partitioner partitioner(client->api(), scratch.path());
  ASSERT_OK_AND_ASSIGN(const ShardProgram shard, partitioner.Partition(module, "hlo", "", 8));
  EXPECT(scratch.empty());
  EXPECT(shard.module.find("custom-call") == std::string::npos);  // what ends the compile there
  EXPECT(!shard.differs);
  EXPECT(shard.collectives.empty());
  EXPECT_EQ(shard.info.parameters[0].ToString(), "f32[2]");
  EXPECT_EQ(shard.info.results[0].ToString(), "f32[2]");
  for (int device : {0, 3}) {
    ASSERT_OK_AND_ASSIGN(const auto values, RunOnce(client, shard.module, {1, 2}, device));
    EXPECT(values == (std::vector<float>{2, 4}));
  }
}

TEST(ShardsThatDifferByTheirNumber) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  ASSERT_OK_AND_ASSIGN(const std::string module, Doubled(8, kCopied, hlo::SplitSharding(4)));
  const Partitioner partitioner(client->api(), "");
  ASSERT_OK_AND_ASSIGN(const ShardProgram shard, partitioner.Partition(module, "hlo", "", 4));
  EXPECT(shard.differs);
  EXPECT(shard.collectives.empty());
  for (uint32_t number = 0; number < 4; ++number) {
    ASSERT_OK_AND_ASSIGN(const std::string fixed, hlo::FixPartition(shard.module, number));
    ASSERT_OK_AND_ASSIGN(const auto values, RunOnce(client, fixed, {0, 1, 2, 3, 4, 5, 6, 7}, 1));
    EXPECT(values == (std::vector<float>{4.0f * number, 4.0f * number + 2}));
  }
}

TEST(CollectivesAreNamed) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  ASSERT_OK_AND_ASSIGN(const std::string module, Doubled(8, hlo::SplitSharding(4), kCopied));
  const Partitioner partitioner(client->api(), "");
  ASSERT_OK_AND_ASSIGN(const ShardProgram shard, partitioner.Partition(module, "hlo", "", 4));
  ASSERT_EQ(shard.collectives.size(), size_t{1});
  EXPECT_HAS(shard.collectives[0], "all-gather");
}

TEST(DonorsOutliveThePartitioning) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  ASSERT_OK_AND_ASSIGN(const std::string laid_out, Doubled(8, hlo::SplitSharding(4), hlo::SplitSharding(4)));
  const std::vector<int64_t> first = {0};
  ASSERT_OK_AND_ASSIGN(const std::string module, hlo::SetDonors(laid_out, first));
  const Partitioner partitioner(client->api(), "");
  ASSERT_OK_AND_ASSIGN(const ShardProgram shard, partitioner.Partition(module, "hlo", "", 4));
  EXPECT(shard.info.donated_parameters == first || shard.info.aliased_parameters == first);
}

TEST(AModuleOfOtherFormat) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  constexpr std::string_view kNegated = R"(module @negated attributes {mhlo.num_partitions = 2 : i32} {
    func.func public @main(%x: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"})
        -> (tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {
      %y = stablehlo.negate %x : tensor<4xf32>
      return %y : tensor<4xf32>
    }
  })";
  const Partitioner partitioner(client->api(), "");
  ASSERT_OK_AND_ASSIGN(const ShardProgram shard, partitioner.Partition(kNegated, "mlir", "", 2));
  EXPECT_EQ(shard.info.results[0].ToString(), "f32[2]");
}

TEST(WhatCannotBePartitioned) {
  NEED_PLUGIN(client);
  NEED_CPU(client);
  const Folder scratch;
  const Partitioner partitioner(client->api(), scratch.path());
  EXPECT(!partitioner.Partition("not a module", "hlo", "", 2).ok());
  EXPECT(scratch.empty());
  const Partitioner nowhere(client->api(), scratch.path() + "/missing");
  EXPECT_HAS(nowhere.Partition("", "hlo", "", 2).status().ToString(), scratch.path() + "/missing");
  // A sharding over more devices than there are partitions.
  ASSERT_OK_AND_ASSIGN(const std::string module, Doubled(8, hlo::SplitSharding(4), hlo::SplitSharding(4)));
  EXPECT(!partitioner.Partition(module, "hlo", "", 2).ok());
}

}  // namespace
}  // namespace pathways::pjrt
