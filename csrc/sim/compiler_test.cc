// What the simulated compiler reads in a module, and what it charges.
#include "csrc/sim/compiler.h"

#include "csrc/sim/mlir_text.h"
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

TEST(StableHloAsText) {
  ASSERT_OK_AND_ASSIGN(const MlirSignature one, ReadMlirText(R"(module @m {
      func.func public @main(%a: tensor<4x8xf32> {mhlo.sharding = "{devices=[2,1]<=[2] (:>"}, %b: tensor<i1>) -> tensor<4xbf16> {
        %r = "stablehlo.all_reduce"(%a) : (tensor<4xf32>) -> tensor<4xf32>)"));
  ASSERT_EQ(one.parameters.size(), 2u);
  EXPECT_EQ(one.parameters[0].ToString(), "f32[4,8]");
  EXPECT_EQ(one.parameters[1].ToString(), "pred[]");
  ASSERT_EQ(one.results.size(), 1u);
  EXPECT_EQ(one.results[0].ToString(), "bf16[4]");
  EXPECT(one.collective);
  ASSERT_OK_AND_ASSIGN(const MlirSignature two,
                       ReadMlirText("func.func @main() -> (tensor<complex<f32>>, tensor<3xui8> "
                                    "{a = 1}) {\n %x: tensor<9xf32>"));
  EXPECT(two.parameters.empty());
  ASSERT_EQ(two.results.size(), 2u);
  EXPECT_EQ(two.results[0].ToString(), "c64[]");
  EXPECT_EQ(two.results[1].ToString(), "u8[3]");
  EXPECT(!two.collective);
  for (const char* bad : {"", "module {}", "@main(", "@main(%a: tensor<?xf32>)", "@main(%a: tensor<4xf32", "@main() ->",
                          "@main(%a: tensor<99999999999999999999xf32>)", "ML\xefR\x00"}) {
    EXPECT(!ReadMlirText(bad).ok());
  }
}

TEST(WhatCannotBeReadIsRefused) {
  Compiler compiler({});
  wire::Register request = Request("f");
  request.format = "elf";
  EXPECT_HAS(compiler.Compile(request, 1, ScalarModule()).status().ToString(), "format 'hlo' or 'mlir', got 'elf'");
  EXPECT(!compiler.Compile(Request("f"), 1, std::make_shared<const std::string>("no module")).ok());
}

}  // namespace
}  // namespace pathways::sim
