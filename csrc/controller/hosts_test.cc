#include "csrc/controller/hosts.h"

#include "csrc/controller/expected_hosts.h"
#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

wire::Hello HelloOf(const std::string& name, const std::string& island, size_t devices) {
  wire::Hello hello;
  hello.name = name;
  hello.island = island;
  hello.platform = "cpu";
  hello.data_endpoint = "at " + name;
  hello.devices.resize(devices);
  return hello;
}

TEST(DevicesAreNumberedInTheOrderOfHosts) {
  Hosts hosts(std::string(32, 'k'));
  hosts.Add(HelloOf("a", "one", 2), "w-a", 1, 0);
  hosts.Add(HelloOf("b", "", 1), "w-b", 2, 1);
  EXPECT_EQ(hosts.device_count(), 3u);
  EXPECT_EQ((*hosts.OfDevice(1))->description.name, "a");
  EXPECT_EQ((*hosts.OfDevice(2))->description.name, "b");
  EXPECT(hosts.OfDevice(3).status().code() == Code::kInvalidArgument);
  EXPECT(hosts.At(2).status().code() == Code::kInvalidArgument);
  EXPECT_EQ(hosts.islands().at("b"), 1u);
}

TEST(ANameAndAnEndpointAreFreeAgainWhenTheirHostIsLost) {
  Hosts hosts(std::string(32, 'k'));
  hosts.Add(HelloOf("a", "one", 1), "w-a", 1, 0);
  wire::Hello other = HelloOf("b", "one", 1);
  EXPECT_OK(hosts.Check(other, false));
  other.data_endpoint = "at a";
  EXPECT(hosts.Check(other, false).code() == Code::kAlreadyExists);
  EXPECT(hosts.Check(HelloOf("a", "two", 1), false).code() == Code::kAlreadyExists);
  hosts.Lose(0, "it ended");
  EXPECT_OK(hosts.Check(other, false));
  EXPECT_EQ(hosts.live_count(), 0u);
  EXPECT(hosts.Named("a") == nullptr);
  EXPECT_HAS(hosts[0].lost_reason, "is lost: it ended");
}

TEST(AHostIsLikeThoseOfItsIsland) {
  Hosts hosts(std::string(32, 'k'));
  hosts.Add(HelloOf("a", "one", 1), "w-a", 1, 0);
  wire::Hello other = HelloOf("b", "one", 1);
  other.platform = "cuda";
  EXPECT(hosts.Check(other, false).code() == Code::kFailedPrecondition);
  other.island = "two";
  EXPECT_OK(hosts.Check(other, false));
  other = HelloOf("b", "one", 1);
  other.platform_version = "another";
  EXPECT(hosts.Check(other, false).code() == Code::kFailedPrecondition);
  // Both hosts' devices are number 0 to a plugin that should know both.
  EXPECT_OK(hosts.Check(HelloOf("b", "one", 1), false));
  EXPECT(hosts.Check(HelloOf("b", "one", 1), true).code() == Code::kFailedPrecondition);
}

TEST(OnlyNewHostsAreAnnouncedWithNames) {
  Hosts hosts(std::string(32, 'k'));
  hosts.Add(HelloOf("a", "one", 1), "w-a", 1, 0);
  const wire::Identity client{"c/1", 9};
  EXPECT_EQ(hosts.IdentitiesOf(client, 0).size(), 1u);
  EXPECT_EQ(hosts.IdentitiesOf(hosts[0].identity(), 0).size(), 0u);  // nobody calls itself
  hosts.Announced();
  EXPECT_EQ(hosts.IdentitiesOf(client, hosts.announced()).size(), 0u);
  hosts.Add(HelloOf("b", "one", 1), "w-b", 2, 0);
  EXPECT_EQ(hosts.IdentitiesOf(client, hosts.announced()).at(0).host, 1u);
}

TEST(ExpectedHostsJoinInTheirOrder) {
  ExpectedHosts expected({"a", "b", "c"});
  EXPECT(expected.MustWait("c"));
  EXPECT(!expected.MustWait("a"));
  EXPECT(!expected.MustWait("another"));
  expected.Wait("c", {"w-c", "hello of c"});
  expected.Wait("b", {"w-b", "hello of b"});
  EXPECT_EQ(expected.Missing(), (std::vector<std::string>{"a"}));
  EXPECT(!expected.TakeNext());
  expected.Joined("a");
  EXPECT(expected.under_way());
  expected.Forget("w-c");  // it hung up while it waited
  EXPECT(!expected.knows("w-c"));
  EXPECT_EQ(expected.TakeNext()->hello, "hello of b");
  expected.Joined("b");
  EXPECT(!expected.MustWait("c"));
  EXPECT_EQ(expected.Missing(), (std::vector<std::string>{"c"}));
  expected.Joined("c");
  EXPECT(!expected.under_way());
}

}  // namespace
}  // namespace pathways::controller
