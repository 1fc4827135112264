// Annotated modules are compiled and run by the CPU plugin on four partitions.
#include "csrc/pjrt/hlo_edit.h"

#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/hlo.h"
#include "csrc/pjrt/test_hlo.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

const ShardingBytes kReplicated = std::string();

std::string SumAndDifference() {
  HloBuilder hlo;
  const std::string f32x8 = F32({8});
  const int64_t a = hlo.Parameter(f32x8), b = hlo.Parameter(f32x8);
  const int64_t sum = hlo.Add("add", f32x8, {a, b}), difference = hlo.Add("subtract", f32x8, {a, b});
  hlo.Add("tuple", TupleShape({f32x8, f32x8}), {sum, difference});
  return hlo.Build("sum_and_difference");
}

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
  const ShardingBytes split = SplitSharding(4);
  ASSERT_OK_AND_ASSIGN(const std::string module,
                       AnnotateShardings(SumAndDifference(), {{split, kReplicated}}, {{split, std::nullopt}}));
  const Rows whole(4, kWhole);
  ASSERT_OK_AND_ASSIGN(const auto results, RunOnFour(client, module, {kSplit, whole}));
  EXPECT(results[0] == (Rows{{0, 2}, {4, 6}, {8, 10}, {12, 14}}));
  EXPECT(results[1] == Rows(4, std::vector<float>(8, 0)));  // said nothing: replicated
}

TEST(WhatIsNotNamedStays) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  const ShardingBytes split = SplitSharding(4);
  ASSERT_OK_AND_ASSIGN(const std::string first,
                       AnnotateShardings(SumAndDifference(), {{split, std::nullopt}}, {{std::nullopt, split}}));
  ASSERT_OK_AND_ASSIGN(const std::string second,
                       AnnotateShardings(first, {{std::nullopt, split}}, {{std::nullopt, std::nullopt}}));
  ASSERT_OK_AND_ASSIGN(const auto results, RunOnFour(client, second, {kSplit, kSplit}));
  EXPECT(results[0] == Rows(4, std::vector<float>{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT(results[1] == Rows(4, std::vector<float>{0, 0}));
  ASSERT_OK_AND_ASSIGN(const std::string same, AnnotateShardings(second, {}, {}));
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(same));
  EXPECT_EQ(info.results.size(), size_t{2});
}

TEST(AResultThatIsAParameterIsLaidOutAnew) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  HloBuilder hlo;
  hlo.Parameter(F32({8}));
  ASSERT_OK_AND_ASSIGN(const std::string module,
                       AnnotateShardings(hlo.Build("same"), {{kReplicated}}, {{SplitSharding(4)}}));
  ASSERT_OK_AND_ASSIGN(const auto results, RunOnFour(client, module, {Rows(4, kWhole)}));
  EXPECT(results[0] == kSplit);
}

TEST(AResultThatIsNoTuple) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({8})), zero = hlo.Zero();
  ProtoWriter reduction;
  reduction.Int64(14, 0);
  reduction.Int64(38, HloBuilder::kReduction);
  hlo.Add("reduce", F32({}), {x, zero}, reduction.bytes());
  ASSERT_OK_AND_ASSIGN(const std::string module,
                       AnnotateShardings(hlo.Build("sum"), {{SplitSharding(4)}}, {{kReplicated}}));
  ASSERT_OK_AND_ASSIGN(const auto results, RunOnFour(client, module, {kSplit}));
  EXPECT(results[0] == Rows(4, std::vector<float>{28}));
}

TEST(CountsMustAgree) {
  const std::vector<ShardingBytes> three(3);
  EXPECT_HAS(AnnotateShardings(SumAndDifference(), three, {}).status().ToString(), "2 parameters");
  EXPECT_HAS(AnnotateShardings(SumAndDifference(), {}, three).status().ToString(), "2 results");
  EXPECT(AnnotateShardings("not a module", {}, {}).status().code() == Code::kInvalidArgument);
}

TEST(DonorsAreSet) {
  NEED_PLUGIN(client);
  const std::vector<int64_t> both = {1, 0, 1};
  ASSERT_OK_AND_ASSIGN(const std::string module, SetDonors(SumAndDifference(), both));
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(module));
  EXPECT(info.donated_parameters == (std::vector<int64_t>{0, 1}));
  ASSERT_OK_AND_ASSIGN(const std::string options, ForOneDevice(""));
  ASSERT_OK_AND_ASSIGN(const auto executable, client->Compile(module, "hlo", options));
  ASSERT_OK_AND_ASSIGN(Buffer a, Put(client, kWhole));
  ASSERT_OK_AND_ASSIGN(Buffer b, Put(client, kWhole));
  Buffer* const arguments[] = {&a, &b};
  const std::span<Buffer* const> row(arguments);
  ExecuteArgs args;
  args.arguments = {&row, 1};
  args.execute_device = 0;
  ExecuteOutputs outputs;
  ASSERT_OK(executable->Execute(args, &outputs));
  EXPECT(a.IsDeleted() && b.IsDeleted());
  ASSERT_OK_AND_ASSIGN(const std::string none, SetDonors(module, {}));
  ASSERT_OK_AND_ASSIGN(const auto cleared, ReadHloModule(none));
  EXPECT(cleared.donated_parameters.empty());
  const std::vector<int64_t> beyond = {2};
  EXPECT_HAS(SetDonors(module, beyond).status().ToString(), "2 parameters");
}

TEST(PartitionIdBecomesANumber) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({}));
  const int64_t id = hlo.Add("partition-id", ShapeProto(8, {}), {});
  const int64_t number = hlo.Add("convert", F32({}), {id});
  hlo.Add("add", F32({}), {x, number});
  ASSERT_OK_AND_ASSIGN(const std::string module, FixPartition(hlo.Build("which"), 5));
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(module));
  EXPECT(!info.has_cross_device_instructions);
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
