// Who a host is, and what it knows of the others.
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/test_support.h"

namespace pathways::worker {
namespace {

TEST(AHostKnowsItsDevicesByTheClustersNumbers) {
  const TestHost host;
  EXPECT_EQ(*host.context.LocalDevice(5), 1);
  EXPECT_HAS(host.context.LocalDevice(3).status().message(), "(4 to 5), got 3");
  EXPECT(!host.context.LocalDevice(6).ok());
  EXPECT(!host.context.MemoryIsBounded());
  EXPECT(TestHost(nullptr, {0, 100}).context.MemoryIsBounded());
  EXPECT_HAS(host.context.Here(NotFound("no such buffer")).message(), "host 'h': no such buffer");
}

TEST(AHostsMessagesAndAnswersLeaveByItsOutbox) {
  TestHost host;
  wire::Free free;
  free.buffers = {7};
  host.context.Send(free);
  wire::Reply reply;
  reply.request = 9;
  EXPECT_OK(host.context.SendReply(reply, "text"));
  EXPECT_EQ(host.messages.All<wire::Free>().at(0).buffers.at(0), 7);
  EXPECT_EQ(host.messages.All<wire::Reply>().at(0).request, 9);
}

TEST(TheStoresCountsAreNotedForOthers) {
  TestHost host;
  auto object = std::make_shared<store::Object>(1);
  object->shards[0].bytes = 12;
  EXPECT_OK(host.context.store().Insert(1, std::move(object)));
  EXPECT_EQ(host.context.live_buffers(), 0);
  host.context.Count();
  EXPECT_EQ(host.context.live_buffers(), 1);
  EXPECT_EQ(host.context.live_bytes(), 12);
}

wire::HostDescription Described(uint32_t number, uint32_t first_device, int64_t first_id) {
  wire::HostDescription host;
  host.host = number;
  host.name = "h" + std::to_string(number);
  host.first_device = first_device;
  for (int64_t d = 0; d < 2; ++d) host.devices.push_back({static_cast<uint32_t>(d), "cpu", 0, first_id + d});
  return host;
}

TEST(DevicesAreFoundOnTheirHosts) {
  ClusterView view;
  view.Set({Described(0, 0, 10), Described(1, 2, 20)});
  EXPECT_EQ(view.OfDevice(3)->host, 1);
  EXPECT(view.OfDevice(4) == nullptr);
  EXPECT_EQ(*view.PluginId(3), 21);
  EXPECT_HAS(view.PluginId(4).status().message(), "a device of the cluster, got 4");
  EXPECT(view.PlacesOf({2, 3}, 1) == nullptr);
  const ClusterView::Places places = view.PlacesOf({1, 2}, 1);
  ASSERT_EQ(places->size(), 2);
  EXPECT_EQ((*places)[0].host, 0);
  EXPECT_EQ((*places)[0].device, 1);
  EXPECT_EQ((*places)[1].host, 1);
  EXPECT_EQ((*places)[1].device, 0);
}

TEST(ALostHostKeepsItsPlace) {
  ClusterView view;
  view.Set({Described(0, 0, 10), Described(1, 2, 20)});
  EXPECT(view.Lose(2) == nullptr);
  EXPECT_EQ(view.Lose(0)->name, "h0");
  EXPECT_EQ(view.Find(0)->alive, wire::kHostLost);
  EXPECT_EQ(view.Find(1)->alive, wire::kHostAlive);
  EXPECT_EQ(view.Names().size(), 2);
}

}  // namespace
}  // namespace pathways::worker
