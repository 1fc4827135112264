// Annotated modules are compiled and run by the CPU plugin on four partitions.
#include "csrc/hlo/edit.h"

#include "csrc/hlo/hlo.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

const hlo::ShardingBytes kReplicated = std::string();

using Rows = std::vector<std::vector<float>>;  // [device]

// Runs on all four devices; arguments[i][device], gives [result][device].
Result<std::vector<Rows>> RunOnFour(Client* client, const std::string& module, const std::vector<Rows>& arguments) {
  std::vector<int64_t> ids;
  for (const DeviceInfo& device : client->devices()) ids.push_back(device.id);
  PW_ASSIGN_OR_RETURN(const std::string options, ForDevices("", 1, 4, ids));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(module, "hlo", options));
  std::vector<std::vector<Buffer>> held(4);
  std::vector<std::vector<Buffer*>> rows(4);
  std::vector<std::span<Buffer* const>> spans;
  for (size_t device = 0; device < 4; ++device) {
    for (const Rows& argument : arguments) {
      PW_ASSIGN_OR_RETURN(Buffer buffer, Put(client, argument[device], static_cast<int>(device)));
      held[device].push_back(std::move(buffer));
    }
    for (Buffer& buffer : held[device]) rows[device].push_back(&buffer);
    spans.emplace_back(rows[device]);
  }
  ExecuteArgs args;
  args.arguments = spans;
  ExecuteOutputs outputs;
  PW_RETURN_IF_ERROR(executable->Execute(args, &outputs));
  std::vector<Rows> results(executable->num_outputs(), Rows(4));
  for (size_t device = 0; device < 4; ++device) {
    for (size_t k = 0; k < results.size(); ++k) {
      PW_ASSIGN_OR_RETURN(results[k][device], Fetch(outputs.buffers[device][k]));
    }
  }
  return results;
}

const Rows kSplit = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
const std::vector<float> kWhole = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(ParametersAndResultsAreLaidOut) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  const hlo::ShardingBytes split = hlo::SplitSharding(4);
  ASSERT_OK_AND_ASSIGN(const std::string module, hlo::AnnotateShardings(hlo::SumAndDifference(), {{split, kReplicated}},
                                                                        {{split, std::nullopt}}));
  const Rows whole(4, kWhole);
  ASSERT_OK_AND_ASSIGN(const auto results, RunOnFour(client, module, {kSplit, whole}));
  EXPECT(results[0] == (Rows{{0, 2}, {4, 6}, {8, 10}, {12, 14}}));
  EXPECT(results[1] == Rows(4, std::vector<float>(8, 0)));  // said nothing: replicated
}

TEST(WhatIsNotNamedStays) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  const hlo::ShardingBytes split = hlo::SplitSharding(4);
  ASSERT_OK_AND_ASSIGN(const std::string first, hlo::AnnotateShardings(hlo::SumAndDifference(), {{split, std::nullopt}},
                                                                       {{std::nullopt, split}}));
  ASSERT_OK_AND_ASSIGN(const std::string second,
                       hlo::AnnotateShardings(first, {{std::nullopt, split}}, {{std::nullopt, std::nullopt}}));
  ASSERT_OK_AND_ASSIGN(const auto results, RunOnFour(client, second, {kSplit, kSplit}));
  EXPECT(results[0] == Rows(4, std::vector<float>{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT(results[1] == Rows(4, std::vector<float>{0, 0}));
  ASSERT_OK_AND_ASSIGN(const std::string same, hlo::AnnotateShardings(second, {}, {}));
  ASSERT_OK_AND_ASSIGN(const auto info, hlo::ReadHloModule(same));
  EXPECT_EQ(info.results.size(), size_t{2});
}

TEST(AResultThatIsAParameterIsLaidOutAnew) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  hlo::HloBuilder builder;
  builder.Parameter(hlo::F32({8}));
  ASSERT_OK_AND_ASSIGN(const std::string module,
                       hlo::AnnotateShardings(builder.Build("same"), {{kReplicated}}, {{hlo::SplitSharding(4)}}));
  ASSERT_OK_AND_ASSIGN(const auto results, RunOnFour(client, module, {Rows(4, kWhole)}));
  EXPECT(results[0] == kSplit);
}

TEST(AResultThatIsNoTuple) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  hlo::HloBuilder builder;
  const int64_t x = builder.Parameter(hlo::F32({8})), zero = builder.Zero();
  ProtoWriter reduction;
  reduction.Int64(14, 0);
  reduction.Int64(38, hlo::HloBuilder::kReduction);
  builder.Add("reduce", hlo::F32({}), {x, zero}, reduction.bytes());
  ASSERT_OK_AND_ASSIGN(const std::string module,
                       hlo::AnnotateShardings(builder.Build("sum"), {{hlo::SplitSharding(4)}}, {{kReplicated}}));
  ASSERT_OK_AND_ASSIGN(const auto results, RunOnFour(client, module, {kSplit}));
  EXPECT(results[0] == Rows(4, std::vector<float>{28}));
}

TEST(DonorsAreTaken) {
  NEED_PLUGIN(client);
  const std::vector<int64_t> both = {1, 0, 1};
  ASSERT_OK_AND_ASSIGN(const std::string module, hlo::SetDonors(hlo::SumAndDifference(), both));
  ASSERT_OK_AND_ASSIGN(const std::string options, ForOneDevice(""));
  ASSERT_OK_AND_ASSIGN(const auto executable, client->Compile(module, "hlo", options));
  std::vector<Buffer> arguments;
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(arguments.emplace_back(), Put(client, kWhole));
  }
  ASSERT_OK(ExecuteOn(*executable, arguments).status());
  EXPECT(arguments[0].IsDeleted() && arguments[1].IsDeleted());
}

TEST(PartitionIdBecomesANumber) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  ASSERT_OK_AND_ASSIGN(const std::string module, hlo::FixPartition(hlo::WithPartitionId(), 5));
  ASSERT_OK_AND_ASSIGN(const std::string options, ForOneDevice(""));
  ASSERT_OK_AND_ASSIGN(const auto executable, client->Compile(module, "hlo", options));
  const float two = 2;
  ASSERT_OK_AND_ASSIGN(Buffer argument, client->BufferFromHost(&two, {DType::kF32, {}}, 3));
  Buffer* const arguments[] = {&argument};
  const std::span<Buffer* const> row(arguments);
  ExecuteArgs args;
  args.arguments = {&row, 1};
  args.execute_device = 3;
  ExecuteOutputs outputs;
  ASSERT_OK(executable->Execute(args, &outputs));
  ASSERT_OK_AND_ASSIGN(const auto value, Fetch(outputs.buffers[0][0]));
  EXPECT(value == std::vector<float>{7});
}

}  // namespace
}  // namespace pathways::pjrt
