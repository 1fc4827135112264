#include "csrc/controller/members.h"

#include "csrc/controller/admission.h"
#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

ClusterOptions Options() {
  ClusterOptions options;
  options.heartbeat_interval_ms = 500;
  options.silence_ms = 4000;
  options.lease_ms = 60'000;
  return options;
}

// Ticks twice a second, from one time to the other; what the last tick found.
Members::Found TickUntil(Members& members, uint64_t from_ms, uint64_t to_ms) {
  Members::Found last;
  for (uint64_t now = from_ms; now <= to_ms; now += 500) {
    if (std::optional<Members::Found> found = members.Tick(now)) last = *std::move(found);
  }
  return last;
}

TEST(HeartbeatsAreDueOnceInTheirInterval) {
  Members members(Options());
  members.Add("line/1", wire::Role::kClient, 1, 1000);
  EXPECT(members.Tick(1000).has_value());
  EXPECT(!members.Tick(1499).has_value());
  const std::optional<Members::Found> found = members.Tick(1500);
  EXPECT(found.has_value());
  EXPECT_EQ(found->present.size(), 1u);
  EXPECT_EQ(found->present[0], "line/1");
}

TEST(ASilentMemberIsFoundOnceAndWhenItIsHeardOfAgain) {
  Members members(Options());
  members.Add("line/1", wire::Role::kWorker, 3, 1000);
  EXPECT(TickUntil(members, 1000, 5000).changed.empty());
  const Members::Found silent = TickUntil(members, 5500, 5500);
  EXPECT_EQ(silent.changed.size(), 1u);
  EXPECT(silent.changed[0].member.silent);
  EXPECT_EQ(silent.changed[0].member.index, 3u);
  EXPECT_EQ(silent.changed[0].silence_ms, 4500u);
  EXPECT(TickUntil(members, 6000, 6000).changed.empty());
  members.Heard("line/1", 6200);
  const Members::Found heard = TickUntil(members, 6500, 6500);
  EXPECT_EQ(heard.changed.size(), 1u);
  EXPECT(!heard.changed[0].member.silent);
}

TEST(AMemberIsLostAfterItsLeaseAndOneOfTheSameProcessNever) {
  Members members(Options());
  members.Add("line/1", wire::Role::kClient, 1, 1000);
  members.Add("local/1", wire::Role::kClient, 2, 1000);
  EXPECT(TickUntil(members, 1000, 61'000).lost.empty());
  const Members::Found found = TickUntil(members, 61'500, 61'500);
  EXPECT_EQ(found.lost.size(), 1u);
  EXPECT_EQ(found.lost[0].first, "line/1");
  EXPECT_EQ(found.lost[0].second, 60'500u);
  EXPECT(found.present.empty());
  members.Remove("line/1");
  EXPECT(members.Find("line/1") == nullptr);
  EXPECT_EQ(members.TakeGone().size(), 1u);
  EXPECT(members.TakeGone().empty());
}

TEST(ASuspendedProcessBlamesNobody) {
  Members members(Options());
  members.Add("line/1", wire::Role::kWorker, 0, 1000);
  TickUntil(members, 1000, 2000);
  const std::optional<Members::Found> found = members.Tick(200'000);
  EXPECT(found->was_suspended && found->lost.empty() && found->changed.empty());
  EXPECT_EQ(members.Find("line/1")->last_heard_ms, 200'000u);
}

TEST(ADescriptionMustBeFitToBeShown) {
  wire::Hello hello;
  hello.name = "a";
  EXPECT_OK(CheckTexts(hello));
  hello.machine = "two\nlines";
  EXPECT_HAS(CheckTexts(hello).message(), "machine of at most 1024 bytes without control characters");
  hello.machine.clear();
  hello.devices.push_back({});
  hello.devices[0].kind = std::string(1025, 'x');
  EXPECT_HAS(CheckTexts(hello).message(), "kind of device");
  EXPECT_OK(CheckBuild("1.0", "a", "1.0"));
  EXPECT_HAS(CheckBuild("0.9", "a", "1.0").message(), "expected ptpathways 1.0 as on the controller, got 0.9 on");
}

}  // namespace
}  // namespace pathways::controller
