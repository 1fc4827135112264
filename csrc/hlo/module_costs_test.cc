#include "csrc/hlo/module_costs.h"

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

std::string GroupsAndReduction(const std::vector<std::vector<int64_t>>& groups) {
  ProtoWriter out;
  for (const auto& group : groups) {
    ProtoWriter ids;
    for (const int64_t id : group) ids.Int64(1, id);
    out.Bytes(instruction_field::kReplicaGroups, ids.bytes());
  }
  out.Int64(instruction_field::kCalledComputationIds, HloBuilder::kReduction);
  return std::move(out).Take();
}

std::string ContractingOf(int64_t left, int64_t right) {
  ProtoWriter numbers, out;
  numbers.Int64(1, left);
  numbers.Int64(2, right);
  out.Bytes(instruction_field::kDotDimensions, numbers.bytes());
  return std::move(out).Take();
}

TEST(ModuleCostsCollectivesHaveBytesAndGroups) {
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({8, 4}));
  const int64_t reduced = hlo.Add("all-reduce", F32({8, 4}), {x}, GroupsAndReduction({{0, 1}, {2, 3}}));
  hlo.Add("all-gather", F32({32, 4}), {reduced}, GroupsAndReduction({{0, 1, 2, 3}}));
  ASSERT_OK_AND_ASSIGN(const auto found, ListCollectives(hlo.Build("m"), 4));
  ASSERT_EQ(found.size(), size_t{2});
  EXPECT_EQ(found[0].opcode, "all-reduce");
  EXPECT_EQ(found[0].bytes, 8 * 4 * 4);
  EXPECT(found[0].groups == (ReplicaGroups{{0, 1}, {2, 3}}));
  EXPECT_EQ(found[1].opcode, "all-gather");
  EXPECT_EQ(found[1].bytes, 32 * 4 * 4);  // the result, which is the larger
}

TEST(ModuleCostsAsynchronousCollectivesCountTheirOperandOnce) {
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({8}));
  hlo.Add("all-gather-start", TupleShape({F32({8}), F32({16})}), {x}, GroupsAndReduction({{0, 1}}));
  ASSERT_OK_AND_ASSIGN(const auto found, ListCollectives(hlo.Build("m"), 2));
  ASSERT_EQ(found.size(), size_t{1});
  EXPECT_EQ(found[0].opcode, "all-gather");
  EXPECT_EQ(found[0].bytes, 16 * 4);
}

TEST(ModuleCostsJoinedAllReducesCountAllTheirArrays) {
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({8}));
  const int64_t y = hlo.Parameter(F32({16}));
  hlo.Add("all-reduce", TupleShape({F32({8}), F32({16})}), {x, y}, GroupsAndReduction({{0, 1}}));
  ASSERT_OK_AND_ASSIGN(const auto found, ListCollectives(hlo.Build("m"), 2));
  ASSERT_EQ(found.size(), size_t{1});
  EXPECT_EQ(found[0].bytes, (8 + 16) * 4);
}

TEST(ModuleCostsFlopsOfProductsAndConvolutions) {
  HloBuilder hlo;
  const int64_t a = hlo.Parameter(F32({8, 32}));
  const int64_t b = hlo.Parameter(F32({32, 16}));
  hlo.Add("dot", F32({8, 16}), {a, b}, ContractingOf(1, 0));
  const int64_t image = hlo.Parameter(F32({2, 3, 10, 10}));
  const int64_t kernel = hlo.Parameter(F32({5, 3, 3, 3}));
  ProtoWriter numbers, convolution;
  numbers.Int64(3, 1);  // the kernel's input features; its outputs are dimension 0, the default
  convolution.Bytes(instruction_field::kConvolutionDimensions, numbers.bytes());
  hlo.Add("convolution", F32({2, 5, 8, 8}), {image, kernel}, convolution.bytes());
  hlo.Add("add", F32({8, 16}), {a, a});
  ASSERT_OK_AND_ASSIGN(const auto flops, CountFlops(hlo.Build("m")));
  ASSERT_EQ(flops.size(), size_t{1});
  EXPECT_EQ(flops.at(DType::kF32), 2 * 8 * 16 * 32 + 2 * (2 * 5 * 8 * 8) * (3 * 3 * 3));
}

TEST(ModuleCostsBytesThatAreNoModuleAreRefused) {
  EXPECT_EQ(CountFlops("\xff\xff\xff").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ListCollectives("\xff\xff\xff", 2).status().code(), Code::kInvalidArgument);
  HloBuilder hlo;
  const int64_t a = hlo.Parameter(F32({8, 32}));
  hlo.Add("dot", F32({8, 8}), {a, a}, ContractingOf(7, 0));
  EXPECT_EQ(CountFlops(hlo.Build("m")).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace pathways::hlo
