// Numbers of modules: read, left out of skeletons, and made parameters of modules that a real plugin runs.
#include "csrc/pjrt/numbers.h"

#include <array>
#include <cmath>
#include <random>

#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/hlo.h"
#include "csrc/pjrt/test_hlo.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

constexpr int64_t kSize = 6;

// A module of f32[6] -> f32[6] whose structure comes from one seed and whose numbers from another. Of `kept` numbers
// only a seed decides too: those that belong to the skeleton.
std::string RandomModule(uint32_t structure_seed, uint32_t number_seed) {
  std::mt19937 structure(structure_seed), numbers(number_seed);
  const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(structure); };
  const auto index = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(numbers); };
  const auto real = [&] { return std::uniform_real_distribution<float>(-2, 2)(numbers); };
  HloBuilder builder;
  const std::string vector = F32({kSize}), scalar = F32({});
  std::vector<int64_t> values{builder.Parameter(vector), builder.Parameter(vector)};
  const auto spread = [&](int64_t number) { return builder.Add("broadcast", vector, {number}); };
  const int steps = 2 + pick(8);
  for (int i = 0; i < steps; ++i) {
    const int64_t a = values[static_cast<size_t>(pick(static_cast<int>(values.size())))];
    const int64_t b = values[static_cast<size_t>(pick(static_cast<int>(values.size())))];
    switch (pick(11)) {
      case 0: {  // part of one in the other
        const int64_t size = 1 + pick(kSize - 1);
        const int64_t from = index(kSize - size + 1);
        const int64_t part = builder.Add("slice", F32({size}), {a}, SliceOf(from, from + size, 1));
        const int64_t to = builder.Add("constant", ShapeProto(5, {}), {}, IndexConstant(index(kSize + 3)));  // clamped
        values.push_back(builder.Add("dynamic-update-slice", vector, {b, part, to}));
        break;
      }
      case 1:
        values.push_back(
            builder.Add("multiply", vector, {a, spread(builder.Add("constant", scalar, {}, FloatConstant(real())))}));
        break;
      case 2:
        values.push_back(
            builder.Add("add", vector, {a, spread(builder.Add("constant", scalar, {}, FloatConstant(real())))}));
        break;
      case 3:
        values.push_back(builder.Add("maximum", vector, {a, b}));
        break;
      case 4: {  // a divisor belongs to the skeleton
        const float divisor = static_cast<float>(2 + pick(3));
        values.push_back(
            builder.Add("divide", vector, {a, spread(builder.Add("constant", scalar, {}, FloatConstant(divisor)))}));
        break;
      }
      case 5:  // what stands above it does not
        values.push_back(builder.Add("divide", vector,
                                     {spread(builder.Add("constant", scalar, {}, FloatConstant(real()))),
                                      spread(builder.Add("constant", scalar, {}, FloatConstant(4)))}));
        break;
      case 6: {  // with a stride: it stays
        const int64_t part = builder.Add("slice", F32({2}), {a}, SliceOf(1, 5, 2));
        const int64_t to = builder.Add("constant", ShapeProto(5, {}), {}, IndexConstant(index(kSize - 1)));
        values.push_back(builder.Add("dynamic-update-slice", vector, {b, part, to}));
        break;
      }
      case 8: {  // put somewhere; what is around it belongs to the skeleton
        const int64_t size = 1 + pick(kSize - 1);
        const int64_t part = builder.Add("slice", F32({size}), {a}, SliceOf(0, size, 1));
        const int64_t around = builder.Add("constant", scalar, {}, FloatConstant(static_cast<float>(pick(3))));
        const int64_t low = index(kSize - size + 1);
        values.push_back(builder.Add("pad", vector, {part, around}, PaddingOf(low, kSize - size - low)));
        break;
      }
      case 9: {  // cut, and padded on one side: it stays
        values.push_back(builder.Add("pad", vector, {a, builder.Add("constant", scalar, {}, FloatConstant(0.5f))},
                                     PaddingOf(-1, 1)));
        break;
      }
      case 7: {  // one number of several uses
        const int64_t number = spread(builder.Add("constant", scalar, {}, FloatConstant(real())));
        values.push_back(builder.Add("subtract", vector, {builder.Add("multiply", vector, {a, number}), number}));
        break;
      }
      default:
        values.push_back(builder.Add("subtract", vector, {a, b}));
    }
  }
  builder.Add("negate", vector, {values.back()});
  return builder.Build("random" + std::to_string(number_seed));
}

Result<std::vector<float>> RunNumbered(Client* client, const std::string& module,
                                       std::span<const ModuleNumber> numbers) {
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneDevice(""));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(module, "hlo", options));
  std::vector<Buffer> buffers;
  for (const float scale : {1.0f, -0.5f}) {
    std::vector<float> given(kSize);
    for (size_t i = 0; i < given.size(); ++i) given[i] = scale * (static_cast<float>(i) + 0.25f);
    PW_ASSIGN_OR_RETURN(Buffer buffer, client->BufferFromHost(given.data(), TensorType{DType::kF32, {kSize}}, 0));
    buffers.push_back(std::move(buffer));
  }
  for (const ModuleNumber& number : numbers) {
    PW_ASSIGN_OR_RETURN(Buffer buffer, client->BufferFromHost(&number.bits, TensorType{number.dtype, {}}, 0));
    buffers.push_back(std::move(buffer));
  }
  std::vector<Buffer*> pointers;
  for (Buffer& buffer : buffers) pointers.push_back(&buffer);
  const std::span<Buffer* const> row(pointers);
  ExecuteArgs args;
  args.arguments = {&row, 1};
  args.execute_device = 0;
  ExecuteOutputs outputs;
  PW_RETURN_IF_ERROR(executable->Execute(args, &outputs));
  return Fetch(outputs.buffers.at(0).at(0));
}

std::vector<size_t> Differing(const ModuleNumbers& a, const ModuleNumbers& b) {
  std::vector<size_t> out;
  for (size_t i = 0; i < a.numbers.size(); ++i) {
    if (a.numbers[i] != b.numbers[i]) out.push_back(i);
  }
  return out;
}

TEST(OneModuleComputesWhatAllOfItsFamilyDo) {
  NEED_PLUGIN(client);
  size_t opened = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const std::string first = RandomModule(seed, 1), second = RandomModule(seed, 2);
    ASSERT_OK_AND_ASSIGN(const ModuleNumbers one, ReadNumbers(first));
    ASSERT_OK_AND_ASSIGN(const ModuleNumbers two, ReadNumbers(second));
    EXPECT(one.skeleton == two.skeleton);
    ASSERT_EQ(one.numbers.size(), two.numbers.size());
    const std::vector<size_t> differing = Differing(one, two);
    opened += differing.size();
    ASSERT_OK_AND_ASSIGN(const std::string shared, WithNumbersAsParameters(first, differing));
    for (const auto& [module, read] : {std::pair(&first, &one), std::pair(&second, &two)}) {
      std::vector<ModuleNumber> numbers;
      for (const size_t position : differing) numbers.push_back(read->numbers[position]);
      ASSERT_OK_AND_ASSIGN(const std::vector<float> got, RunNumbered(client, shared, numbers));
      ASSERT_OK_AND_ASSIGN(const std::vector<float> want, RunNumbered(client, *module, {}));
      for (size_t i = 0; i < want.size(); ++i) EXPECT(std::abs(got[i] - want[i]) <= 1e-6f * (1 + std::abs(want[i])));
    }
  }
  EXPECT(opened > 60);
}

TEST(WhatMayBeComputedAnotherWayBelongsToTheSkeleton) {
  const auto module = [](const std::string& opcode, float number, bool first) {
    HloBuilder builder;
    const int64_t x = builder.Parameter(F32({4}));
    const int64_t spread =
        builder.Add("broadcast", F32({4}), {builder.Add("constant", F32({}), {}, FloatConstant(number))});
    builder.Add(opcode, F32({4}), first ? std::vector<int64_t>{spread, x} : std::vector<int64_t>{x, spread});
    return builder.Build("one");
  };
  for (const auto& [opcode, first, open] :
       {std::tuple("power", false, false), std::tuple("power", true, false), std::tuple("divide", false, false),
        std::tuple("divide", true, true), std::tuple("multiply", false, true)}) {
    ASSERT_OK_AND_ASSIGN(const ModuleNumbers one, ReadNumbers(module(opcode, 2, first)));
    ASSERT_OK_AND_ASSIGN(const ModuleNumbers two, ReadNumbers(module(opcode, 3, first)));
    EXPECT_EQ(one.skeleton == two.skeleton, open);
    EXPECT_EQ(one.numbers.size(), size_t{open ? 1u : 0u});
  }
}

TEST(ASliceOfAllIsNoNumber) {
  HloBuilder builder;
  const int64_t x = builder.Parameter(F32({4}));
  builder.Add("slice", F32({4}), {x}, SliceOf(0, 4, 1));
  ASSERT_OK_AND_ASSIGN(const ModuleNumbers read, ReadNumbers(builder.Build("whole")));
  EXPECT(read.numbers.empty());
}

TEST(NumbersOfMalformedModulesAreRefused) {
  EXPECT(!ReadNumbers("\xff\xff").ok());
  EXPECT(!ReadNumbers("").ok());
  const std::string module = RandomModule(3, 1);
  const std::array<size_t, 1> first{0}, beyond{1000};
  EXPECT(!WithNumbersAsParameters(module, beyond).ok());
  for (size_t i = 0; i < module.size(); ++i) {  // any bytes are safe to give
    std::string changed = module;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    (void)ReadNumbers(changed);
    (void)WithNumbersAsParameters(changed, first);
    (void)ReadNumbers(std::string_view(module).substr(0, i));
  }
}

}  // namespace
}  // namespace pathways::pjrt
