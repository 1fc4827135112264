// Products of matrices in HLO: read against the definition of a dot, and replaced.
#include "csrc/hlo/dot_instruction.h"

#include "csrc/hlo/dot_test_support.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/hlo/use_kernels.h"
#include "csrc/kernels/onednn_api.h"
#include "csrc/kernels/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

TEST(ReshapesAndTransposesThatCopyNothingAreKnown) {
  const auto reshaped = [](const Indices& dims, const Indices& order, const Indices& to) {
    return OrderOfReshaped({11, dims, order}, to).value_or(Indices{-1});
  };
  EXPECT_EQ(reshaped({4, 6}, {0, 1}, {24}), Indices({0}));
  EXPECT_EQ(reshaped({4, 6}, {1, 0}, {24}), Indices({-1}));
  EXPECT_EQ(reshaped({4, 6}, {1, 0}, {2, 2, 6}), Indices({2, 0, 1}));
  EXPECT_EQ(reshaped({2, 2, 6}, {2, 0, 1}, {4, 6}), Indices({1, 0}));
  EXPECT_EQ(reshaped({2, 3, 4}, {1, 2, 0}, {2, 12}), Indices({1, 0}));
  EXPECT_EQ(reshaped({2, 3, 4}, {2, 1, 0}, {2, 12}), Indices({-1}));
  EXPECT_EQ(reshaped({1, 64}, {0, 1}, {64}), Indices({0}));
  EXPECT_EQ(reshaped({64}, {0}, {64, 1}), Indices({0, 1}));
  EXPECT_EQ(reshaped({}, {}, {1, 1}), Indices({0, 1}));
  EXPECT_EQ(reshaped({0, 4}, {0, 1}, {4, 0}), Indices({-1}));
  EXPECT_EQ(reshaped({4}, {0}, {5}), Indices({-1}));
  // (a, b, c) in memory, seen as (c, a, b).
  EXPECT_EQ(OrderOfTransposed({0, 1, 2}, {2, 0, 1}), Indices({1, 2, 0}));
}

TEST(WhatIsNoProductOfAKernelLibraryIsLeft) {
  HloDot dot;
  dot.size['m'] = 3, dot.size['k'] = 4, dot.size['x'] = 5;
  dot.left = "mk", dot.right = "kx", dot.result = "mx", dot.contracting = "k";
  const auto is_left = [&](int64_t type, const std::string& fields, Indices left = {3, 4}, Indices made = {3, 5}) {
    ProtoWriter instruction;
    instruction.Bytes(3, ShapeProto(type, made));
    instruction.Raw(fields);
    const auto read = ReadDotInstruction(instruction.bytes(), {type, left, {0, 1}}, {type, {4, 5}, {0, 1}}, {});
    return read.ok() && !*read;
  };
  constexpr int64_t kF32 = 11, kF64 = 12, kS32 = 4;
  EXPECT(!is_left(kF32, DotFields(dot)));
  EXPECT(is_left(kF64, DotFields(dot)));
  EXPECT(is_left(kS32, DotFields(dot)));
  EXPECT(is_left(kF32, DotFields(dot), {0, 4}, {0, 5}));  // nothing in it
  EXPECT(is_left(kF32, DotFields(dot), {3, 7}));          // not consistent
  EXPECT(is_left(kF32, ""));
  ProtoWriter algorithm, precise;
  algorithm.Int64(2, 3);  // PrecisionConfig.algorithm
  precise.Raw(DotFields(dot));
  precise.Bytes(51, algorithm.bytes());
  EXPECT(is_left(kF32, precise.bytes()));
}

TEST(WeightGradientsAreMadeAsTheyAreStored) {
  if (kernels::OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(kernels::LoadOnednn(kernels::OnednnPath()));
  // As PyTorch/XLA writes them: rows of inputs, transposed, times rows of gradients; then a transpose.
  HloDot dot;
  dot.size['m'] = 128, dot.size['k'] = 256, dot.size['x'] = 64;
  dot.stored_left = "km", dot.left = "mk", dot.stored_right = dot.right = "kx", dot.result = "mx", dot.wanted = "xm";
  dot.contracting = "k";
  ASSERT_OK_AND_ASSIGN(const ModuleWithKernels edited, UseKernels(ModuleOf(dot), 1));
  EXPECT_EQ(edited.products, 1u);
  // (1, x, k), (1, k, m) and (1, x, m), of which nothing is copied.
  const Indices numbers{3, 11, 1, 64, 256, 64, 1, 64, 1, 256, 128, 32768, 128, 1, 1, 64, 128, 8192, 128, 1};
  std::string text;
  for (const int64_t number : numbers) text += std::to_string(number) + ", ";
  EXPECT_HAS(edited.module, text.substr(0, text.size() - 2));
}

TEST(SmallProductsAreLeft) {
  if (kernels::OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(kernels::LoadOnednn(kernels::OnednnPath()));
  const auto replaced = [](int64_t rows, int64_t inner, int64_t columns) -> size_t {
    HloDot dot;
    dot.size['m'] = rows, dot.size['k'] = inner, dot.size['x'] = columns;
    dot.stored_left = dot.left = "mk", dot.stored_right = dot.right = "kx", dot.result = "mx", dot.contracting = "k";
    const auto edited = UseKernels(ModuleOf(dot), 1);
    return edited.ok() ? edited->products : 99;
  };
  EXPECT_EQ(replaced(256, 256, 256), 1u);
  EXPECT_EQ(replaced(16, 16, 16), 0u);
  EXPECT_EQ(replaced(1, 4096, 4096), 0u);  // of a vector: memory decides
}

TEST(MalformedModulesWithDotsAreRefused) {
  DotGenerator generator(22);
  const std::string module = ModuleOf(generator.Make(5));
  for (size_t i = 0; i < module.size(); ++i) {  // any bytes are safe to give
    std::string changed = module;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    (void)UseKernels(changed, 1, Replace::kEverything);
    (void)UseKernels(std::string_view(module).substr(0, i), 1, Replace::kEverything);
  }
}

}  // namespace
}  // namespace pathways::hlo
