// The binding of virtual slices to devices.
#include "csrc/controller/resource_manager.h"

#include <algorithm>
#include <random>
#include <set>

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

struct Cluster {
  ResourceManager manager;
  uint32_t hosts = 0;
  uint32_t devices = 0;

  void AddHost(const std::string& island, size_t count, int64_t memory = 0, const std::string& platform = "cpu") {
    wire::HostDescription host;
    host.host = hosts++;
    host.name = "h" + std::to_string(host.host);
    host.island = island;
    host.platform = platform;
    host.first_device = devices;
    host.devices.resize(count);
    for (auto& device : host.devices) device.memory_limit_bytes = memory;
    devices += static_cast<uint32_t>(count);
    manager.AddHost(host);
  }
  Result<ResourceManager::Slice> Ask(uint32_t count, const std::string& island = "", uint32_t over = 0,
                                     uint32_t client = 1, const std::string& platform = "", int64_t memory = 0) {
    return manager.Request(client, wire::RequestSlice{1, count, island, platform, memory, over});
  }
  std::vector<uint32_t> Devices(uint32_t count, const std::string& island = "", uint32_t over = 0) {
    auto slice = Ask(count, island, over);
    return slice.ok() ? slice->devices : std::vector<uint32_t>{};
  }
};

using Numbers = std::vector<uint32_t>;

TEST(SlicesSpreadOverDevicesBeforeTheyShareThem) {
  Cluster c;
  c.AddHost("a", 4);
  c.AddHost("a", 4);
  EXPECT(c.Devices(2) == (Numbers{0, 1}));
  EXPECT(c.Devices(2) == (Numbers{2, 3}));
  EXPECT(c.Devices(4) == (Numbers{4, 5, 6, 7}));
  EXPECT(c.Devices(2) == (Numbers{0, 1}));  // now everything is shared
  EXPECT_EQ(c.manager.load(0), 2u);
  EXPECT_EQ(c.manager.load(2), 1u);
}

TEST(ASliceMayBeAskedForAmongCertainHosts) {
  Cluster c;
  for (int i = 0; i < 3; ++i) c.AddHost("a", 2);
  wire::RequestSlice request{1, 2, "", "", 0, 0, {2}};
  for (int i = 0; i < 2; ++i) {  // however much they carry
    ASSERT_OK_AND_ASSIGN(const ResourceManager::Slice slice, c.manager.Request(1, request));
    EXPECT(slice.devices == (Numbers{4, 5}));
  }
  request.among = {0, 2};
  request.device_count = 6;
  const Status refused = c.manager.Request(1, request).status();
  EXPECT(refused.code() == Code::kResourceExhausted);
  EXPECT_HAS(refused.message(), "among the hosts h0 h2");
}

TEST(ASliceTakesAsFewHostsAsItCanAndLevelShares) {
  Cluster c;
  for (int i = 0; i < 3; ++i) c.AddHost("a", 4);
  EXPECT(c.Devices(1) == (Numbers{0}));
  EXPECT(c.Devices(4) == (Numbers{4, 5, 6, 7}));         // one host, and an idle one
  EXPECT(c.Devices(6) == (Numbers{1, 2, 3, 8, 9, 10}));  // two hosts, three each, the least loaded
  EXPECT(c.Devices(12).size() == 12);
}

TEST(HostsOfUnequalSizeAreFilledLevelly) {
  Cluster c;
  c.AddHost("a", 2);
  c.AddHost("a", 8);
  EXPECT(c.Devices(10) == (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT(c.Devices(9).size() == 9);
  EXPECT_EQ(c.Ask(6, "", 2).status().code(), Code::kResourceExhausted);  // three on each: the first has but two
}

TEST(HostsMayBeAskedForByNumber) {
  Cluster c;
  for (int i = 0; i < 4; ++i) c.AddHost("a", 4);
  EXPECT(c.Devices(4, "", 4) == (Numbers{0, 4, 8, 12}));
  EXPECT(c.Devices(4, "", 2) == (Numbers{1, 2, 5, 6}));
  EXPECT_EQ(c.Ask(4, "", 3).status().code(), Code::kInvalidArgument);
  const Status status = c.Ask(5, "", 5).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT(status.message().find("enough hosts") != std::string_view::npos);
}

TEST(ASliceLiesInOneIslandAndTheIdlestIsTaken) {
  Cluster c;
  c.AddHost("a", 2);
  c.AddHost("b", 2);
  EXPECT(c.Devices(2) == (Numbers{0, 1}));
  EXPECT(c.Devices(2) == (Numbers{2, 3}));
  EXPECT(c.Devices(1, "b") == (Numbers{2}));
  const Status status = c.Ask(3).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT(status.message().find("the largest that qualifies has 2 such devices") != std::string_view::npos);
}

TEST(ASliceOfNamedCpuHostsMaySpanIslands) {
  Cluster c;
  c.AddHost("b", 2);
  c.AddHost("a", 2);
  c.AddHost("g", 2, 0, "cuda");
  c.AddHost("h", 2, 0, "cuda");
  const auto among = [&c](std::vector<uint32_t> hosts, uint32_t count) {
    return c.manager.Request(1, wire::RequestSlice{1, count, "", "", 0, 0, std::move(hosts)});
  };
  ASSERT_OK_AND_ASSIGN(const ResourceManager::Slice spanning, among({0, 1}, 4));
  EXPECT(spanning.devices == (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(spanning.island, std::string("a+b"));
  ASSERT_OK_AND_ASSIGN(const ResourceManager::Slice narrow, among({0, 1}, 2));
  EXPECT_EQ(narrow.devices.size(), size_t{2});
  EXPECT_EQ(narrow.island.size(), size_t{1});  // one island where that is enough
  EXPECT_EQ(among({2, 3}, 4).status().code(), Code::kResourceExhausted);
}

TEST(WhatCannotBeGivenSaysWhatThereIs) {
  Cluster c;
  EXPECT(c.Ask(1).status().message().find("no host at all") != std::string_view::npos);
  c.AddHost("a", 4, int64_t{15} << 30);
  c.AddHost("a", 4, int64_t{15} << 30);
  c.AddHost("g", 1, int64_t{80} << 30, "cuda");
  c.Devices(2, "a");
  c.Devices(8, "a");
  EXPECT(c.Ask(2, "a", 0, 4).ok());
  c.manager.NameClient(4, "client 'train' (pid 7)");
  const Status status = c.Ask(16).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  const std::string message(status.message());
  EXPECT(message.find("a slice of 16 devices") != std::string::npos);
  EXPECT(message.find(
             "island 'a': 2 hosts x 4 cpu devices, 15.00 GiB each, 3 slices bound (2 by client 1, 1 by client 'train' "
             "(pid 7)), 0 of 8 devices in no slice") != std::string::npos);
  EXPECT(message.find("island 'g': 1 host x 1 cuda device, 80.00 GiB each, 0 slices bound") != std::string::npos);
  EXPECT(c.Ask(1, "nowhere").status().message().find("in island 'nowhere'") != std::string_view::npos);
  EXPECT(c.Ask(1, "", 0, 1, "tpu").status().message().find("no island has such a device") != std::string_view::npos);
  EXPECT_EQ(c.Ask(0).status().code(), Code::kInvalidArgument);
}

TEST(MemoryAndPlatformAreConstraints) {
  Cluster c;
  c.AddHost("a", 2, 100);
  c.AddHost("b", 2, 1000);
  c.AddHost("c", 1, 5000, "cuda");
  EXPECT(c.Ask(2, "", 0, 1, "cpu", 500)->devices == (Numbers{2, 3}));
  EXPECT(c.Ask(1, "", 0, 1, "cuda")->devices == (Numbers{4}));
  EXPECT_EQ(c.Ask(2, "", 0, 1, "", 2000).status().code(), Code::kResourceExhausted);
}

TEST(ReleasesAndLossesAreForgotten) {
  Cluster c;
  c.AddHost("a", 2);
  const uint64_t first = c.Ask(2)->id;
  ASSERT_OK(c.Ask(1, "", 0, 2));
  EXPECT_EQ(c.manager.load(0), 2u);
  c.manager.Release(std::vector<uint64_t>{first});
  c.manager.Release(std::vector<uint64_t>{first, 77});
  EXPECT_EQ(c.manager.load(0), 1u);
  c.manager.DropClient(2);
  EXPECT_EQ(c.manager.load(0), 0u);
  EXPECT(c.manager.slices().empty());
  c.manager.RemoveHost(0);
  EXPECT(!c.Ask(1).ok());
  c.AddHost("a", 2);  // a later one takes its place
  EXPECT(c.Devices(2) == (Numbers{2, 3}));
}

// Whatever is asked, in whatever order: slices keep to their island, no device twice, loads add up, and as long as
// only single devices are asked for, no device carries two slices more than another.
TEST(RandomRequestsKeepTheBooksStraight) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    Cluster c;
    std::vector<std::string> island_of;  // by device
    const uint32_t hosts = 1 + below(6);
    for (uint32_t h = 0; h < hosts; ++h) {
      const std::string island(1, static_cast<char>('a' + below(3)));
      const size_t devices = 1 + below(5);
      c.AddHost(island, devices);
      island_of.insert(island_of.end(), devices, island);
    }
    const bool single = seed % 2 == 0;
    std::vector<ResourceManager::Slice> held;
    for (int step = 0; step < 200; ++step) {
      if (!held.empty() && !single && below(3) == 0) {
        const size_t which = below(static_cast<uint32_t>(held.size()));
        c.manager.Release(std::vector<uint64_t>{held[which].id});
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        continue;
      }
      const uint32_t count = single ? 1 : 1 + below(8);
      auto slice = c.Ask(count, "", single ? 0 : below(3), 1 + below(3));
      if (!slice.ok()) continue;
      EXPECT_EQ(slice->devices.size(), count);
      EXPECT_EQ(std::set<uint32_t>(slice->devices.begin(), slice->devices.end()).size(), count);
      EXPECT(std::is_sorted(slice->devices.begin(), slice->devices.end()));
      for (uint32_t device : slice->devices) EXPECT_EQ(island_of.at(device), slice->island);
      held.push_back(*slice);
    }
    std::vector<uint32_t> load(island_of.size(), 0);
    for (const auto& slice : held) {
      for (uint32_t device : slice.devices) ++load[device];
    }
    for (uint32_t d = 0; d < load.size(); ++d) EXPECT_EQ(c.manager.load(d), load[d]);
    if (single) {
      EXPECT(*std::max_element(load.begin(), load.end()) - *std::min_element(load.begin(), load.end()) <= 1);
    }
  }
}

}  // namespace
}  // namespace pathways::controller
