#include "csrc/base/log_limit.h"

#include "csrc/testing/test.h"

namespace pathways {
namespace {

TEST(APeerFillsNoLog) {
  LogLimit limit;
  uint32_t lines = 0;
  for (int i = 0; i < 90'000; ++i) lines += limit.Take("a", "bad", 5).has_value();
  EXPECT_EQ(lines, LogLimit::kPerPeer);
  EXPECT_EQ(*limit.Take("b", "other", 6), "other (89990 lines before this one were left out)");
  EXPECT(!limit.Take("a", "bad", LogLimit::kMinuteMs - 1));
  EXPECT_EQ(*limit.Take("a", "bad", LogLimit::kMinuteMs + 5), "bad (1 lines before this one were left out)");
}

TEST(ManyPeersFillNoLogEither) {
  LogLimit limit;
  uint32_t lines = 0;
  for (int i = 0; i < 90'000; ++i) lines += limit.Take("peer " + std::to_string(i), "bad", 5).has_value();
  EXPECT_EQ(lines, LogLimit::kInAll);
}

TEST(AnAddressIsToldOnceAMinute) {
  LogLimit limit(1);
  EXPECT_EQ(*limit.Take("10.0.0.9", "refused", 1000), "refused");
  for (uint64_t ms = 1001; ms < LogLimit::kMinuteMs; ms += 20) EXPECT(!limit.Take("10.0.0.9", "refused", ms));
  EXPECT_HAS(*limit.Take("10.0.0.10", "refused", LogLimit::kMinuteMs), "lines before this one were left out");
  EXPECT_EQ(*limit.Take("10.0.0.9", "refused", 1000 + LogLimit::kMinuteMs), "refused");
}

TEST(RawBytesAreEscaped) {
  LogLimit limit;
  EXPECT_EQ(*limit.Take("a", std::string("x\n\x1b[2J\0\xff", 8), 0), "x\\x0a\\x1b[2J\\x00\\xff");
  EXPECT_EQ(Printable(std::string(600, 'y')), std::string(512, 'y') + "...");
}

}  // namespace
}  // namespace pathways
