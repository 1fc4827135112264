// The arithmetic at its edges: rounding of narrow types, NaN, overflow, pred.
#include "csrc/collective/reduce.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "csrc/collective/layout.h"
#include "csrc/collective/plan.h"
#include "csrc/testing/test.h"

namespace pathways::collective {
namespace {

using hlo::Reduction;

template <typename T>
std::vector<T> Reduce(DType dtype, Reduction reduction, std::vector<T> a, const std::vector<T>& b) {
  const ReduceFunction reduce = *FindReduction(dtype, reduction);
  auto* to = reinterpret_cast<std::byte*>(a.data());
  reduce(to, to, reinterpret_cast<const std::byte*>(b.data()), a.size());
  return a;
}

template <typename T>
T ReduceOne(DType dtype, Reduction reduction, T a, T b) {
  return Reduce<T>(dtype, reduction, std::vector<T>{a}, std::vector<T>{b})[0];
}

TEST(Bf16RoundsToTheNearestEven) {
  const auto bf16 = [](float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); };
  // 256 + 1 lies between 256 and 258: the even one is 256. 258 + 1 lies between 258 and 260: 260.
  const auto sums =
      Reduce<uint16_t>(DType::kBF16, Reduction::kSum, {bf16(256), bf16(258), bf16(NAN)}, {bf16(1), bf16(1), bf16(1)});
  EXPECT_EQ(sums[0], bf16(256));
  EXPECT_EQ(sums[1], bf16(260));
  EXPECT_EQ(sums[2] & 0x7fc0, 0x7fc0);
}

TEST(EveryF16SurvivesAndTheTailAgreesWithTheWidePart) {
  // x * 1 is x for every number; the first 8 go through the wide loop, if there is one, and a lone one never does.
  constexpr uint16_t kOne = 0x3c00;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto x = static_cast<uint16_t>(bits);
    const bool nan = (bits & 0x7fff) > 0x7c00;
    const auto wide =
        Reduce<uint16_t>(DType::kF16, Reduction::kProduct, std::vector<uint16_t>(8, x), std::vector<uint16_t>(8, kOne));
    const auto lone = Reduce<uint16_t>(DType::kF16, Reduction::kProduct, {x}, {kOne});
    if (nan ? (wide[0] & 0x7fff) <= 0x7c00 || (lone[0] & 0x7fff) <= 0x7c00 : wide[0] != x || lone[0] != x) {
      EXPECT_EQ(wide[0], x);
      EXPECT_EQ(lone[0], x);
      return;
    }
    const auto y = static_cast<uint16_t>(bits * 40503);
    const auto wide_sum =
        Reduce<uint16_t>(DType::kF16, Reduction::kSum, std::vector<uint16_t>(8, x), std::vector<uint16_t>(8, y));
    const auto lone_sum = Reduce<uint16_t>(DType::kF16, Reduction::kSum, {x}, {y});
    if ((wide_sum[0] & 0x7fff) <= 0x7c00 && wide_sum[0] != lone_sum[0]) {
      EXPECT_EQ(wide_sum[0], lone_sum[0]);
      return;
    }
  }
}

TEST(MinAndMaxGiveNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
    const auto result = Reduce<float>(DType::kF32, reduction, {nan, 1, 2}, {1, nan, 3});
    EXPECT(std::isnan(result[0]));
    EXPECT(std::isnan(result[1]));
    EXPECT_EQ(result[2], reduction == Reduction::kMin ? 2.0f : 3.0f);
  }
}

TEST(IntegersWrapAroundAndPredIsLogical) {
  EXPECT_EQ(ReduceOne<int32_t>(DType::kS32, Reduction::kSum, INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kU16, Reduction::kProduct, 65535, 65535), 1);
  EXPECT_EQ(ReduceOne<int8_t>(DType::kS8, Reduction::kMin, -1, 1), -1);
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kPred, Reduction::kSum, 1, 1), 1);
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kPred, Reduction::kProduct, 1, 0), 0);
}

TEST(WhatHasNoMeaningIsRefused) {
  EXPECT_EQ(FindReduction(DType::kC64, Reduction::kMin).status().code(), Code::kUnimplemented);
  EXPECT_EQ(FindReduction(DType::kF32, Reduction::kAnd).status().code(), Code::kUnimplemented);
  EXPECT_HAS(FindReduction(DType::kF8E5M2, Reduction::kSum).status().message(), "sum of f8e5m2");
}

TEST(SharesCoverEverythingOnce) {
  for (const uint64_t bytes : {0, 1, 63, 64, 1000, 1 << 20, (1 << 20) + 5}) {
    for (size_t hosts = 1; hosts <= 9; ++hosts) {
      uint64_t at = 0;
      for (size_t i = 0; i < hosts; ++i) {
        const Share share = ShareOf(bytes, i, hosts);
        EXPECT_EQ(share.begin, at);
        EXPECT_LE(share.end - share.begin, bytes / hosts + 128);
        at = share.end;
      }
      EXPECT_EQ(at, bytes);
    }
  }
}

TEST(RowsWithoutNumberDoNotFitAndHarmNothing) {
  hlo::CollectiveOp op;
  op.kind = hlo::CollectiveKind::kAllReduce;
  op.reduction = Reduction::kSum;
  const auto layout = FindLayout(op, {{0, 0}, {1, 0}}, 0, 0);
  EXPECT_OK(layout.status());
  std::vector<std::byte> memory(64);
  for (const int64_t outer : {int64_t{1} << 62, int64_t{1} << 61, INT64_MAX, int64_t{-1}, int64_t{3}}) {
    const hlo::CollectiveOperand operand{DType::kF32, outer, memory, memory};
    const LocalPart part{0, {&operand, 1}};
    ExchangePlan plan;
    EXPECT_EQ(BuildPlan(op, *layout, {&part, 1}, &plan).code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pathways::collective
