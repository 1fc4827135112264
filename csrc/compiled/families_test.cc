#include "csrc/compiled/families.h"

#include "csrc/base/proto.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::compiled {
namespace {

using hlo::F32;
using hlo::HloBuilder;
using hlo::IndexConstant;
using hlo::SliceOf;

// x[at : at + 2] - x[to : to + 2], and y with that at `write`; both f32[8]. Of another `size` it is another family.
std::string Step(int64_t at, int64_t to, int64_t write, int64_t size = 2, const std::string& name = "step") {
  HloBuilder builder;
  const int64_t x = builder.Parameter(F32({8})), y = builder.Parameter(F32({8}));
  const int64_t left = builder.Add("slice", F32({size}), {x}, SliceOf(at, at + size));
  const int64_t right = builder.Add("slice", F32({size}), {x}, SliceOf(to, to + size));
  const int64_t difference = builder.Add("subtract", F32({size}), {left, right});
  const int64_t start = builder.Add("constant", hlo::ShapeProto(5, {}), {}, IndexConstant(write));
  builder.Add("dynamic-update-slice", F32({8}), {y, difference, start});
  return builder.Build(name);
}

std::vector<uint64_t> Bits(const Chosen& chosen) {
  std::vector<uint64_t> bits;
  for (const hlo::ModuleNumber& number : chosen.numbers) bits.push_back(number.bits);
  return bits;
}

TEST(TheFirstOfAFamilyIsCompiledAsItIs) {
  ModuleFamilies families;
  ASSERT_OK_AND_ASSIGN(const Chosen first, families.Choose(Step(0, 1, 0)));
  EXPECT(first.module == Step(0, 1, 0));
  EXPECT(first.numbers.empty());
  EXPECT(first.is_new);
  ASSERT_OK_AND_ASSIGN(const Chosen again, families.Choose(Step(0, 1, 0)));
  EXPECT(again.numbers.empty());
  EXPECT(!again.is_new);
}

TEST(ModulesThatDifferInNumbersShareAComputation) {
  ModuleFamilies families;
  (void)*families.Choose(Step(0, 1, 0));
  ASSERT_OK_AND_ASSIGN(const Chosen second, families.Choose(Step(1, 1, 2)));
  EXPECT(second.is_new);
  EXPECT_EQ(Bits(second), (std::vector<uint64_t>{1, 2}));
  ASSERT_OK_AND_ASSIGN(const hlo::HloModuleInfo info, hlo::ReadHloModule(second.module));
  EXPECT_EQ(info.parameters.size(), size_t{4});
  for (int64_t step = 2; step < 6; ++step) {
    ASSERT_OK_AND_ASSIGN(const Chosen next, families.Choose(Step(step, 1, step + 1)));
    EXPECT(!next.is_new);
    EXPECT(next.module == second.module);
    EXPECT_EQ(Bits(next), (std::vector<uint64_t>{static_cast<uint64_t>(step), static_cast<uint64_t>(step + 1)}));
  }
  // The first one is still itself.
  EXPECT((*families.Choose(Step(0, 1, 0))).numbers.empty());
}

TEST(ANumberThatMovesLaterJoinsThem) {
  ModuleFamilies families;
  (void)*families.Choose(Step(0, 1, 0));
  ASSERT_OK_AND_ASSIGN(const Chosen one, families.Choose(Step(1, 1, 0)));
  EXPECT_EQ(Bits(one).size(), size_t{1});
  ASSERT_OK_AND_ASSIGN(const Chosen two, families.Choose(Step(1, 2, 0)));
  EXPECT(two.is_new);
  EXPECT_EQ(Bits(two), (std::vector<uint64_t>{1, 2}));
  // What was found for a module stays what is found for it.
  ASSERT_OK_AND_ASSIGN(const Chosen again, families.Choose(Step(1, 1, 0)));
  EXPECT(again.module == one.module);
  EXPECT(!again.is_new);
}

TEST(ShapesAndStructureMakeOtherFamilies) {
  ModuleFamilies families;
  (void)*families.Choose(Step(0, 1, 0));
  ASSERT_OK_AND_ASSIGN(const Chosen other, families.Choose(Step(1, 1, 0, 3)));
  EXPECT(other.is_new);
  EXPECT(other.numbers.empty());
}

TEST(NamesMakeNone) {
  ModuleFamilies families;
  (void)*families.Choose(Step(0, 1, 0));
  ASSERT_OK_AND_ASSIGN(const Chosen named, families.Choose(Step(1, 1, 0, 2, "another")));
  EXPECT_EQ(Bits(named), (std::vector<uint64_t>{1}));
}

TEST(WhatIsNoModuleIsRefused) {
  ModuleFamilies families;
  EXPECT(!families.Choose("not a module").ok());
  EXPECT(!families.Choose("").ok());
}

}  // namespace
}  // namespace pathways::compiled
