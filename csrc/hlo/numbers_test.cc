// Numbers of modules: read, and left out of skeletons.
#include "csrc/hlo/numbers.h"

#include <array>
#include <tuple>

#include "csrc/hlo/numbers_test_support.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

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
}  // namespace pathways::hlo
