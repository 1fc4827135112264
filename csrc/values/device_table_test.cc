#include "csrc/values/device_table.h"

#include "csrc/client/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::values {
namespace {

TEST(DevicesAreFoundByIdAndByMemory) {
  DeviceTable table, other;
  table.AddLogical(nullptr, 2);
  other.AddLogical(nullptr, 1);
  EXPECT(table.Find(-1) == nullptr && table.Find(2) == nullptr);
  PJRT_Device* const second = table.Find(1);
  ASSERT(second != nullptr);
  EXPECT(second == table.all()[1] && second->description.id == 1);
  EXPECT(*table.Of(second, nullptr) == second);
  EXPECT(*table.Of(nullptr, table.memories()[1]) == second);
  EXPECT_EQ(table.Of(nullptr, nullptr).status().message(), "expected a device or a memory, got neither");
  EXPECT_HAS(table.Of(other.Find(0), nullptr).status().message(), "belongs to another client");
  EXPECT_HAS(table.Of(nullptr, other.memories()[0]).status().message(), "belongs to another client");
}

TEST(DevicesAreBoundToThoseOfHostsThatAreAlive) {
  std::vector<wire::HostDescription> hosts = client::HostsWithDevices(3);
  hosts[1].alive = 0;
  DeviceTable table;
  ASSERT_OK(table.AddBound(nullptr, hosts, std::vector<int64_t>{2, 0}));
  ASSERT_EQ(table.all().size(), size_t{2});
  EXPECT_EQ(table.Find(0)->devices()->front(), uint32_t{2});
  EXPECT_EQ(table.Find(1)->devices()->front(), uint32_t{0});
  EXPECT_HAS(DeviceTable().AddBound(nullptr, hosts, std::vector<int64_t>{1}).message(),
             "device 1, but the cluster has 2 live devices");
  EXPECT_HAS(DeviceTable().AddBound(nullptr, hosts, std::vector<int64_t>{2, 2}).message(), "device 2 twice");
}

}  // namespace
}  // namespace pathways::values
