// What is released together, and when.
#include "csrc/client/releases.h"

#include "csrc/client/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

struct TwoHosts {
  Hosts hosts;
  Releases releases;
  TwoHosts() { EXPECT(hosts.Update(HostsWithDevices(2), {})); }
};

TEST(ABufferIsFreedOnEachOfItsHostsThatLives) {
  TwoHosts c;
  EXPECT(!c.releases.Free(1, 4, {0, 1}, c.hosts));
  EXPECT(c.hosts.Lose(1, "it died"));
  EXPECT(!c.releases.Free(2, 4, {0, 1}, c.hosts));
  const Releases::Batch batch = c.releases.Take();
  ASSERT_EQ(batch.buffers.size(), 2u);
  EXPECT(batch.buffers.at(0) == (std::vector<uint64_t>{1, 2}));
  EXPECT(batch.buffers.at(1) == (std::vector<uint64_t>{1}));
  EXPECT(c.releases.Take().buffers.empty());
}

TEST(AHostsBatchIsFullAtItsLimit) {
  TwoHosts c;
  for (uint64_t id = 1; id < Releases::kMaxKeptBuffers; ++id) {
    EXPECT(!c.releases.Free(2 * id, 0, {0}, c.hosts));
    EXPECT(!c.releases.Free(2 * id + 1, 0, {1}, c.hosts));
  }
  EXPECT(c.releases.Free(2000, 0, {0}, c.hosts));
  c.releases.Take();
  EXPECT(!c.releases.Free(2001, 0, {0}, c.hosts));
}

TEST(BytesOfAllShardsMatterUntilTheyAreTaken) {
  TwoHosts c;
  c.releases.Free(1, Releases::kMaxKeptBytes / 2 - 1, {0, 1}, c.hosts);
  EXPECT(!c.releases.large());
  c.releases.Free(2, 1, {0, 1}, c.hosts);
  EXPECT(c.releases.large());
  c.releases.UnregisterFunction(3);
  c.releases.UnregisterProgram(4);
  const Releases::Batch batch = c.releases.Take();
  EXPECT(batch.gone.functions == (std::vector<uint64_t>{3}));
  EXPECT(batch.gone.programs == (std::vector<uint64_t>{4}));
  EXPECT(!c.releases.large());
}

}  // namespace
}  // namespace pathways::client
