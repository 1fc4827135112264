// What the simulated compiler reads in a module, and what it charges.
#include "csrc/sim/compiler.h"

#include "csrc/sim/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::sim {
namespace {

wire::Register Request(const std::string& name, bool one_device = false) {
  wire::Register request;
  request.name = name;
  request.format = "hlo";
  request.one_device = one_device;
  return request;
}

TEST(OutputsAreSplitAsTheRootIsSharded) {
  Compiler compiler({});
  const TensorType whole{DType::kF32, {8, 6}};
  const auto module = MakeModule({{whole, whole}, whole, "add", TiledSharding({4, 1}), {TiledSharding({2, 2})}});
  ASSERT_OK_AND_ASSIGN(const auto compiled, compiler.Compile(Request("f"), 4, module));
  ASSERT_EQ(compiled->outputs.size(), 1u);
  EXPECT_EQ(compiled->outputs[0].ToString(), "f32[2,6]");
  EXPECT_EQ(compiled->parameters[0].ToString(), "f32[4,3]");
  EXPECT_EQ(compiled->parameters[1].ToString(), "f32[8,6]");  // replicated where nothing is said
  // For one device nothing is split; the same module for so many devices is read once.
  ASSERT_OK_AND_ASSIGN(const auto alone, compiler.Compile(Request("f", true), 1, module));
  EXPECT_EQ(alone->outputs[0].ToString(), "f32[8,6]");
  ASSERT_OK_AND_ASSIGN(const auto again, compiler.Compile(Request("f"), 4, module));
  EXPECT(again == compiled);
}

TEST(AShardingOfTooFewDimensionsIsRefused) {
  EXPECT_HAS(ShardType({DType::kF32, {8, 6}}, TiledSharding({4})).status().ToString(), "expected a sharding of 2");
  EXPECT_HAS(ShardType({DType::kF32, {8}}, TiledSharding({0})).status().ToString(), "at least one tile");
  EXPECT_HAS(ShardType({DType::kF32, {8}}, "\xff\xff").status().ToString(), "malformed");
  ASSERT_OK_AND_ASSIGN(const TensorType last, ShardType({DType::kF32, {7}}, TiledSharding({2, 4})));
  EXPECT_EQ(last.ToString(), "f32[4]");  // tiles beyond the rank replicate; what does not divide is padded
}

TEST(WhoseDevicesMeet) {
  const auto plain = MakeModule({{}, {DType::kF32, {}}, "add", "", {}});
  const auto reduce = MakeModule({{}, {DType::kF32, {}}, "all-reduce", "", {}});
  for (const Meeting meeting : {Meeting::kAlways, Meeting::kExplicit, Meeting::kNever}) {
    CompilerOptions options;
    options.meeting = meeting;
    Compiler compiler(options);
    const wire::Register request = Request("f");
    const bool with = compiler.Meets(request, 4, **compiler.Compile(request, 4, reduce));
    const bool without = compiler.Meets(request, 4, **compiler.Compile(request, 4, plain));
    EXPECT_EQ(with, meeting != Meeting::kNever);
    EXPECT_EQ(without, meeting == Meeting::kAlways);
    EXPECT(!compiler.Meets(request, 1, **compiler.Compile(request, 1, reduce)));
  }
}

TEST(CostsComeFromTheFirstRuleThatFits) {
  CompilerOptions options;
  options.costs = {{"matmul*", 120}, {"*small*", 1}};
  options.collective_us = 3;
  Compiler compiler(options);
  EXPECT_EQ(compiler.CostNs("matmul_small", false), 120'000);
  EXPECT_EQ(compiler.CostNs("a_small_one", false), 1'000);
  EXPECT_EQ(compiler.CostNs("other", true), 13'000);
  compiler.AddRule({"other", 0.5});
  EXPECT_EQ(compiler.CostNs("other", false), 500);
}

TEST(PatternsWithStars) {
  EXPECT(Fits("*", ""));
  EXPECT(Fits("a*c", "abbc"));
  EXPECT(Fits("*b*b", "abab"));
  EXPECT(!Fits("a*c", "abb"));
  EXPECT(!Fits("", "a"));
}

TEST(WhatCannotBeReadIsRefused) {
  Compiler compiler({});
  wire::Register request = Request("f");
  request.format = "mlir";
  EXPECT_HAS(compiler.Compile(request, 1, ScalarModule()).status().ToString(), "format 'hlo'");
  EXPECT(!compiler.Compile(Request("f"), 1, std::make_shared<const std::string>("no module")).ok());
}

}  // namespace
}  // namespace pathways::sim
