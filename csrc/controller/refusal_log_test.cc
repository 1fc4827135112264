#include "csrc/controller/refusal_log.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

TEST(AnAddressIsToldOnceAMinute) {
  RefusalLog log;
  const auto first = log.Note("10.0.0.9", false, 1000);
  ASSERT(first.has_value());
  EXPECT(first->find("10.0.0.9") != std::string::npos);
  for (uint64_t ms = 1001; ms < 1000 + RefusalLog::kQuietMs; ms += 20) EXPECT(!log.Note("10.0.0.9", false, ms));
  EXPECT(log.Note("10.0.0.10", false, 1002).has_value());
  const auto later = log.Note("10.0.0.9", false, 1000 + RefusalLog::kQuietMs);
  ASSERT(later.has_value());
  EXPECT(later->find("3002 times") != std::string::npos);
}

TEST(ManyAddressesDoNotFillTheMemory) {
  RefusalLog log;
  size_t lines = 0;
  for (int i = 0; i < 5000; ++i) lines += log.Note("host" + std::to_string(i), false, 1).has_value() ? 1 : 0;
  EXPECT_EQ(lines, RefusalLog::kMaxAddresses + 1);
  EXPECT(log.Note("", false, 2) == std::nullopt);
}

}  // namespace
}  // namespace pathways::controller
