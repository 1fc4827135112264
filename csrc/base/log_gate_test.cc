#include "csrc/base/log_gate.h"

#include "csrc/testing/test.h"

namespace pathways {
namespace {

TEST(APeersMistakesAreToldAFewTimesAMinute) {
  LogGate gate;
  int told = 0;
  for (int i = 0; i < 90'000; ++i) told += gate.Note("c/1", "nonsense", 1000 + i / 10).has_value();
  EXPECT_EQ(told, 5);
  EXPECT(gate.Note("c/2", "nonsense", 10'000).has_value());  // others are not hidden behind it
  const auto later = gate.Note("c/1", "nonsense", 1000 + LogGate::kWindowMs);
  ASSERT(later.has_value());
  EXPECT_HAS(*later, "and 89995 more");
}

TEST(WhatAPeerSentIsEscapedAndCutShort) {
  EXPECT_EQ(Escaped(std::string_view("a\n\x1b[1m\0b", 8)), std::string("a\\x0a\\x1b[1m\\x00b"));
  EXPECT_EQ(Escaped(std::string(600, 'x')).size(), 503u);
  LogGate gate;
  for (int i = 0; i < 10'000; ++i) (void)gate.Note("peer " + std::to_string(i), "x", 1);
  EXPECT(!gate.Note("peer 9999", "x", 2).has_value());  // the table of peers has a limit
}

}  // namespace
}  // namespace pathways
