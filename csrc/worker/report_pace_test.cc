// How many ends are reported together.
#include "csrc/worker/report_pace.h"

#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

using std::chrono::microseconds;

ReportPace WithUnderWay(size_t runs) {
  ReportPace pace;
  for (size_t i = 0; i < runs; ++i) pace.Began();
  return pace;
}

TEST(EndsOfShortRunsAreReportedTogetherWhileManyAreUnderWay) {
  ReportPace pace = WithUnderWay(ReportPace::kManyUnderWay + 2);
  EXPECT_EQ(pace.together(), 1);  // how long they take is not known yet
  pace.Ended(microseconds(20));
  EXPECT_EQ(pace.together(), ReportPace::kTogether);
  pace.Ended(microseconds(20));
  EXPECT_EQ(pace.together(), ReportPace::kTogether);
  pace.Ended(microseconds(20));  // too few are left
  EXPECT_EQ(pace.together(), 1);
  pace.Began();
  EXPECT_EQ(pace.together(), ReportPace::kTogether);
}

TEST(TheEndOfALongRunIsReportedAtOnce) {
  ReportPace pace = WithUnderWay(4 * ReportPace::kManyUnderWay);
  pace.Ended(microseconds(20));
  EXPECT_EQ(pace.together(), ReportPace::kTogether);
  pace.Ended(ReportPace::kShort);
  EXPECT_EQ(pace.together(), 1);
}

}  // namespace
}  // namespace pathways::worker
