// What plugins tell launches apart by: the cluster's order, and not what one client counts.
#include "csrc/worker/computation.h"

#include <cstdint>
#include <set>

#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

TEST(LaunchesThatMayMeetHaveDifferentNumbers) {
  std::set<int32_t> numbers;
  size_t launches = 0;
  for (uint64_t sequence = 0; sequence < 2000; ++sequence) {
    for (uint32_t node : {0u, 1u, 2u, 16u, 999'999u}) {
      numbers.insert(LaunchNumber({.sequence = sequence, .node = node}));
      ++launches;
    }
  }
  EXPECT_EQ(numbers.size(), launches);
  EXPECT(numbers.count(0) == 0);
}

TEST(NoLaunchHasTheNumberOfNone) {
  for (uint64_t sequence : {uint64_t{0}, uint64_t{INT32_MAX}, uint64_t{1} << 40, UINT64_MAX}) {
    for (uint32_t node : {0u, UINT32_MAX}) EXPECT(LaunchNumber({.sequence = sequence, .node = node}) > 0);
  }
}

}  // namespace
}  // namespace pathways::worker
