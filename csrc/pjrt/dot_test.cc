// Products of matrices in HLO: read against the definition of a dot, and replaced in modules that a real plugin runs.
#include <algorithm>
#include <array>
#include <random>

#include "csrc/kernels/onednn_api.h"
#include "csrc/kernels/test_support.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/custom_calls.h"
#include "csrc/pjrt/dot_instruction.h"
#include "csrc/pjrt/test_hlo.h"
#include "csrc/pjrt/test_support.h"
#include "csrc/pjrt/use_kernels.h"

namespace pathways::pjrt {
namespace {

using Indices = std::vector<int64_t>;

// A dot of which every dimension has a letter: sizes by letter, and each array's letters in its order.
struct HloDot {
  std::array<int64_t, 128> size{};
  std::string left, right, result, batch, contracting;
  std::string stored_left, stored_right;  // the parameters' letters: transposed to the dot's operands
  std::string wanted;                     // the result's letters after a transpose; empty: none follows

  Indices Sizes(const std::string& letters) const {
    Indices out;
    for (const char letter : letters) out.push_back(size[static_cast<size_t>(letter)]);
    return out;
  }
};

Indices Places(const std::string& of, const std::string& in) {
  Indices out;
  for (const char letter : of) out.push_back(static_cast<int64_t>(in.find(letter)));
  return out;
}

class DotGenerator {
 public:
  explicit DotGenerator(uint32_t seed) : random_(seed) {}

  int64_t Between(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random_); }

  HloDot Make(int64_t largest) {
    HloDot out;
    const auto letters = [&](const std::string& from, int64_t most) {
      const std::string some = from.substr(0, static_cast<size_t>(Between(0, most)));
      for (const char letter : some) {
        out.size[static_cast<size_t>(letter)] = Between(0, 4) == 0 ? 1 : Between(1, largest);
      }
      return some;
    };
    out.batch = letters("bc", 2);
    out.contracting = letters("kl", 2);
    const std::string rows = letters("mn", 2), columns = letters("xy", 2);
    out.left = Shuffled(out.batch + rows + out.contracting);
    out.right = Shuffled(out.batch + out.contracting + columns);
    out.result = out.batch;
    for (const char letter : out.left)
      out.result += rows.find(letter) == std::string::npos ? "" : std::string(1, letter);
    for (const char letter : out.right) {
      out.result += columns.find(letter) == std::string::npos ? "" : std::string(1, letter);
    }
    out.stored_left = Between(0, 1) == 0 ? out.left : Shuffled(out.left);
    out.stored_right = Between(0, 1) == 0 ? out.right : Shuffled(out.right);
    if (Between(0, 1) == 0) out.wanted = Shuffled(out.result);
    return out;
  }

  std::vector<float> Numbers(const Indices& dims) {
    std::vector<float> out(static_cast<size_t>(kernels::StridedArray{dims, {}}.ElementCount()));
    for (float& value : out) value = static_cast<float>(Between(-4, 4));
    return out;
  }

 private:
  std::string Shuffled(std::string letters) {
    std::shuffle(letters.begin(), letters.end(), random_);
    return letters;
  }
  std::mt19937 random_;
};

std::string DotFields(const HloDot& dot) {
  ProtoWriter numbers, out;
  for (const int64_t dim : Places(dot.contracting, dot.left)) numbers.Int64(1, dim);
  for (const int64_t dim : Places(dot.contracting, dot.right)) numbers.Int64(2, dim);
  for (const int64_t dim : Places(dot.batch, dot.left)) numbers.Int64(3, dim);
  for (const int64_t dim : Places(dot.batch, dot.right)) numbers.Int64(4, dim);
  out.Bytes(30, numbers.bytes());
  return std::move(out).Take();
}

std::string DimensionFields(const Indices& dims) {
  ProtoWriter out;
  for (const int64_t dim : dims) out.Int64(14, dim);
  return std::move(out).Take();
}

std::string ModuleOf(const HloDot& dot) {
  HloBuilder builder;
  const auto operand = [&](int64_t parameter, const std::string& stored, const std::string& seen) {
    if (stored == seen) return parameter;
    return builder.Add("transpose", F32(dot.Sizes(seen)), {parameter}, DimensionFields(Places(seen, stored)));
  };
  const int64_t a = builder.Parameter(F32(dot.Sizes(dot.stored_left)));
  const int64_t b = builder.Parameter(F32(dot.Sizes(dot.stored_right)));
  const int64_t left = operand(a, dot.stored_left, dot.left), right = operand(b, dot.stored_right, dot.right);
  const int64_t made = builder.Add("dot", F32(dot.Sizes(dot.result)), {left, right}, DotFields(dot));
  if (!dot.wanted.empty()) {
    builder.Add("transpose", F32(dot.Sizes(dot.wanted)), {made}, DimensionFields(Places(dot.wanted, dot.result)));
  }
  return builder.Build("one_dot");
}

// Of row-major arrays with the parameters' letters, as one with the letters of the module's result.
std::vector<float> ByDefinition(const HloDot& dot, const std::vector<float>& left, const std::vector<float>& right) {
  const std::string made = dot.wanted.empty() ? dot.result : dot.wanted;
  const std::string all = made + dot.contracting;
  const auto offset = [&](const std::string& letters, const Indices& at) {
    int64_t out = 0;
    for (const char letter : letters) out = out * dot.size[static_cast<size_t>(letter)] + at[all.find(letter)];
    return static_cast<size_t>(out);
  };
  std::vector<float> result(static_cast<size_t>(kernels::StridedArray{dot.Sizes(made), {}}.ElementCount()));
  const Indices sizes = dot.Sizes(all);
  Indices at(all.size());
  do {
    result[offset(made, at)] += left[offset(dot.stored_left, at)] * right[offset(dot.stored_right, at)];
  } while (kernels::NextIndex(sizes, &at));
  return result;
}

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

TEST(ModulesWithProductsComputeTheSame) {
  NEED_PLUGIN(client);
  if (kernels::OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(kernels::LoadOnednn(kernels::OnednnPath()));
  ASSERT_OK(RegisterCustomCalls(*client->api(), "cpu"));
  DotGenerator generator(21);
  int replaced = 0;
  for (int i = 0; i < 80; ++i) {
    const HloDot dot = generator.Make(i % 2 == 0 ? 5 : 12);
    ASSERT_OK_AND_ASSIGN(const ModuleWithKernels edited, UseKernels(ModuleOf(dot), 2, Replace::kEverything));
    EXPECT_EQ(edited.products + edited.left, 1u);
    if (edited.products == 0) continue;
    ++replaced;
    const Indices a_dims = dot.Sizes(dot.stored_left), b_dims = dot.Sizes(dot.stored_right);
    const std::vector<float> a = generator.Numbers(a_dims), b = generator.Numbers(b_dims);
    ASSERT_OK_AND_ASSIGN(const auto result,
                         RunTwo(client, edited.module, {DType::kF32, a_dims}, a, {DType::kF32, b_dims}, b));
    EXPECT(result == ByDefinition(dot, a, b));
  }
  EXPECT(replaced > 50);
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
}  // namespace pathways::pjrt
