// Which hosts and devices there are, and who stays lost.
#include "csrc/client/hosts.h"

#include "csrc/client/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

TEST(ADeviceHasTheHostThatListsIt) {
  std::vector<wire::HostDescription> now = HostsWithDevices(2);
  now[0].devices.resize(3);
  Hosts hosts;
  EXPECT(hosts.Update(now, {}));
  EXPECT_EQ(hosts.device_count(), 4u);
  EXPECT_EQ(hosts.OfDevice(2), 0u);
  EXPECT_EQ(*hosts.AliveOfDevice(3), 1u);
  EXPECT_HAS(hosts.AliveOfDevice(4).status().message(), "expected a device below 4, got 4");
  EXPECT_HAS(hosts.CheckAlive(2).message(), "expected a host below 2, got 2");
}

TEST(AnOlderListChangesOnlyIdentities) {
  Hosts hosts;
  EXPECT(hosts.Update(HostsWithDevices(2), {}));
  EXPECT(hosts.IdentityAt(1) == nullptr);
  EXPECT(!hosts.Update(HostsWithDevices(1), {{1, "c/7"}}));
  EXPECT_EQ(hosts.all().size(), 2u);
  ASSERT(hosts.IdentityAt(1) != nullptr);
  EXPECT_EQ(*hosts.IdentityAt(1), "c/7");
}

TEST(ALostHostStaysLostInALaterList) {
  Hosts hosts;
  EXPECT(!hosts.Lose(0, "it was never there"));
  EXPECT(hosts.Update(HostsWithDevices(2), {}));
  EXPECT(hosts.Lose(0, "host 'h0' is lost"));
  EXPECT(hosts.Update(HostsWithDevices(3), {}));
  EXPECT_EQ(hosts[0].alive, wire::kHostLost);
  EXPECT_EQ(hosts.AliveOfDevice(0).status().code(), Code::kUnavailable);
  EXPECT_HAS(hosts.CheckAlive(0).message(), "host 'h0' is lost");
  EXPECT_OK(hosts.CheckAlive(2));
}

}  // namespace
}  // namespace pathways::client
