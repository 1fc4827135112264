#include "csrc/worker/engine_watch.h"

#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

using Decision = EngineWatch::Decision;
constexpr int64_t kLimitMs = 60'000;
constexpr int64_t kEveryMs = 500;

TEST(AnEngineThatTurnsIsAskedAgainAndAgain) {
  EngineWatch watch(kLimitMs);
  for (int64_t now = 0; now < 10 * kLimitMs; now += kEveryMs) {
    EXPECT(watch.Look(now, 0) == Decision::kAsk);
    watch.Turned();
  }
}

TEST(AnEngineThatStandsStillHangsAfterTheLimit) {
  EngineWatch watch(kLimitMs);
  EXPECT(watch.Look(1000, 7) == Decision::kAsk);
  for (int64_t now = 1500; now <= 1000 + kLimitMs; now += kEveryMs) EXPECT(watch.Look(now, 7) == Decision::kWait);
  EXPECT(watch.Look(1500 + kLimitMs, 7) == Decision::kHangs);
  EXPECT_EQ(watch.still_ms(), kLimitMs + 500);
}

TEST(AnEngineThatComputesIsLeftAlone) {
  EngineWatch watch(kLimitMs);
  EXPECT(watch.Look(0, 0) == Decision::kAsk);
  for (int64_t now = kEveryMs; now < 20 * kLimitMs; now += kEveryMs) {
    EXPECT(watch.Look(now, now / 50) == Decision::kWait);
  }
}

TEST(WhatItComputedBeforeDoesNotCountForLong) {
  EngineWatch watch(kLimitMs);
  EXPECT(watch.Look(0, 0) == Decision::kAsk);
  EXPECT(watch.Look(kEveryMs, kEveryMs) == Decision::kWait);  // and then it stops
  Decision last = Decision::kWait;
  int64_t now = kEveryMs;
  while (last == Decision::kWait && now < 3 * kLimitMs) last = watch.Look(now += kEveryMs, kEveryMs);
  EXPECT(last == Decision::kHangs);
  EXPECT(now <= kLimitMs + 3 * kEveryMs);
}

TEST(AProcessThatWasStoppedForgivesItsEngine) {
  EngineWatch watch(kLimitMs);
  EXPECT(watch.Look(0, 0) == Decision::kAsk);
  EXPECT(watch.Look(kEveryMs, 0) == Decision::kWait);
  EXPECT(watch.Look(5 * kLimitMs, 0) == Decision::kWait);  // nobody looked meanwhile
  watch.Turned();
  EXPECT(watch.Look(5 * kLimitMs + kEveryMs, 0) == Decision::kAsk);
}

}  // namespace
}  // namespace pathways::worker
