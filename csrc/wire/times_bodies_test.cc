// Times: golden bytes, the limits, and its decoder against bytes that are wrong in every way.
#include "csrc/wire/times_bodies.h"

#include <random>

#include "csrc/testing/test.h"

namespace pathways::wire {
namespace {

Times Sample() {
  Times times;
  times.real_ns_ahead = 7;
  times.nodes = {"f", "gh"};
  times.runs = {{5, 1, {}}, {6, 0, {{2, 1, 100, 300}, {3, 0, 300, 300}}}};
  return times;
}

// The worked example of docs/protocol.md.
TEST(GoldenTimes) {
  static constexpr unsigned char kBytes[] = {
      7,   0, 0, 0, 0, 0, 0, 0,                                 // real time is 7 ns ahead
      2,   0, 0, 0, 1, 0, 0, 0, 'f', 2, 0, 0, 0, 'g', 'h',      // two nodes
      2,   0, 0, 0,                                             // two runs
      5,   0, 0, 0, 0, 0, 0, 0, 1,   0, 0, 0, 0, 0,   0,   0,   // run 5: one computation is missing, none is here
      6,   0, 0, 0, 0, 0, 0, 0, 0,   0, 0, 0, 2, 0,   0,   0,   // run 6: two
      2,   0, 0, 0, 1, 0, 0, 0,                                 // device 2, node "gh"
      100, 0, 0, 0, 0, 0, 0, 0, 44,  1, 0, 0, 0, 0,   0,   0,   // from 100 to 300
      3,   0, 0, 0, 0, 0, 0, 0,                                 // device 3, node "f"
      44,  1, 0, 0, 0, 0, 0, 0, 44,  1, 0, 0, 0, 0,   0,   0};  // no time at all
  EXPECT_EQ(EncodeTimes(Sample()), std::string(reinterpret_cast<const char*>(kBytes), sizeof kBytes));
}

TEST(TimesSurviveTheTrip) {
  const Result<Times> again = DecodeTimes(EncodeTimes(Sample()));
  ASSERT_OK(again.status());
  EXPECT_EQ(again->nodes[1], std::string("gh"));
  EXPECT_EQ(again->runs[0].missing, 1u);
  EXPECT_EQ(again->runs[1].computations[0].end_ns, int64_t{300});
  EXPECT_OK(DecodeTimes(EncodeTimes(Times{})).status());
}

TEST(TimesThatCannotBeAreRefused) {
  const auto refused = [](const Times& times, std::string_view why) {
    const Result<Times> read = DecodeTimes(EncodeTimes(times));
    EXPECT_EQ(read.status().code(), Code::kDataLoss);
    EXPECT_HAS(read.status().message(), why);
  };
  Times times = Sample();
  times.runs[1].computations[0].node = 2;
  refused(times, "node 2 of 2");
  times = Sample();
  times.runs[1].computations[0].end_ns = 99;
  refused(times, "ends before it starts");
  times = Sample();
  times.runs.resize(kMaxTimedRuns + 1);
  refused(times, "5 runs");
  times = Sample();
  times.runs[0].computations.resize(kMaxTimedComputations + 1);
  refused(times, "a run of 65537 computations");
  times = Sample();
  times.nodes.resize(kMaxTimedComputations + 1);
  refused(times, "65537 nodes");
}

TEST(TimesSurviveGarbage) {
  const std::string good = EncodeTimes(Sample());
  for (size_t size = 0; size < good.size(); ++size) EXPECT(!DecodeTimes(good.substr(0, size)).ok());
  EXPECT(!DecodeTimes(good + '\0').ok());
  std::mt19937_64 random(9);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = good;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) bytes[random() % bytes.size()] ^= 1 << (random() % 8);
    const Result<Times> read = DecodeTimes(bytes);
    if (read.ok()) {
      EXPECT_EQ(EncodeTimes(*read), bytes);
    } else {
      EXPECT(!read.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace pathways::wire
