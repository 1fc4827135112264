#include "csrc/scheduler/island_scheduler.h"

#include "csrc/testing/test.h"

namespace pathways::scheduler {
namespace {

TEST(GangsAreNumberedInTheOrderSubmitted) {
  IslandScheduler island;
  EXPECT_EQ(*island.Submit({10, 1, 1}), 1u);
  EXPECT_EQ(*island.Submit({20, 2, 1}), 2u);
  EXPECT_EQ(*island.Submit({11, 1, 1}), 3u);
  EXPECT_EQ(island.in_flight(), 3u);
}

TEST(AnIdIsMintedOnce) {
  IslandScheduler island;
  ASSERT_OK(island.Submit({10, 1, 1}).status());
  EXPECT_EQ(island.Submit({10, 1, 1}).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(island.last_sequence(), 1u);
  EXPECT(island.PartDone(10, 0.0));
}

TEST(AGangEndsWithItsLastHost) {
  IslandScheduler island;
  ASSERT_OK(island.Submit({10, 1, 3}).status());
  EXPECT(!island.PartDone(10, 0.5));
  EXPECT(!island.PartDone(10, 0.25));
  EXPECT(island.PartDone(10, 0.25));
  EXPECT(!island.PartDone(10, 9.0));  // a late word changes nothing
  EXPECT_EQ(island.accounts().at(1).gangs_finished, 1u);
  EXPECT_EQ(island.accounts().at(1).device_seconds, 1.0);
}

TEST(AClientThatIsGoneLeavesNothingInFlight) {
  IslandScheduler island;
  ASSERT_OK(island.Submit({10, 1, 1}).status());
  ASSERT_OK(island.Submit({20, 2, 1}).status());
  island.DropClient(1);
  EXPECT_EQ(island.in_flight(), 1u);
  EXPECT(!island.PartDone(10, 1.0));
  EXPECT(island.PartDone(20, 1.0));
}

}  // namespace
}  // namespace pathways::scheduler
