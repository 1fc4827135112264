// Gangs that fail: who is told, and how often.
#include "csrc/worker/gangs.h"

#include "csrc/worker/test_support.h"

namespace pathways::worker {
namespace {

struct HostOfGangs : TestHostWithBuffers {
  Completions completions{context, causes};
  Gangs gangs{context, cluster, causes, completions, *data};
};

TEST(TheOtherHostsOfAFailedGangAreToldOnce) {
  HostOfGangs host;
  host.gangs.AbortElsewhere(1, Internal("out of luck"));
  host.gangs.AbortElsewhere(1, Internal("again"));
  const auto told = host.messages.All<wire::Abort>();
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0].run, 1);
  EXPECT_HAS(told[0].status.message(), "out of luck");
}

TEST(WhatFailedElsewhereIsNotToldBackAndIsTheCause) {
  HostOfGangs host;
  host.gangs.Abort({1, Internal("host 'g': out of luck")});
  host.gangs.AbortElsewhere(1, Internal("handed on"));
  EXPECT(host.messages.All<wire::Abort>().empty());
  const Status cause = host.completions.RootCause(Internal("handed on: host 'g': out of luck"), "function 'f'", {});
  EXPECT_EQ(cause.message(), "host 'g': out of luck");
}

TEST(NothingIsServedForPlatformsWithCollectivesOfTheirOwn) {
  HostOfGangs host;  // before it has joined, it serves nothing either
  EXPECT(!host.gangs.serves());
  EXPECT(host.gangs.Stalls(std::chrono::milliseconds(0)).empty());
  host.gangs.HostsChanged();
  host.gangs.HostLost(0, Unavailable("lost"));
  host.gangs.ReportStalls();
  EXPECT(host.messages.All<wire::Stalled>().empty());
  host.gangs.Stop(Cancelled("the worker stops"));
}

}  // namespace
}  // namespace pathways::worker
