#include "csrc/worker/early_transfers.h"

#include "csrc/testing/test.h"
#include "csrc/wire/bodies.h"

namespace pathways::worker {
namespace {

constexpr uint64_t KeyOf(uint64_t client, uint64_t number = 7) { return (client << wire::kClientShift) | number; }

const std::vector<std::byte> kBytes(16);

TEST(BytesAreKeptInTheirOrderUntilTheyAreTaken) {
  EarlyTransfers early;
  early.Keep("c/1", KeyOf(1), 0, 32, kBytes, {});
  early.Keep("c/1", KeyOf(1), 16, 32, kBytes, {});
  early.KeepOwn(KeyOf(2), kBytes, nullptr);
  EXPECT_EQ(early.size(), 2u);
  EXPECT_EQ(early.bytes_of("c/1"), 32u);
  {
    const std::vector<EarlyTransfers::Item> items = early.Take(KeyOf(1));
    EXPECT_EQ(items.size(), 2u);
    EXPECT_EQ(items[1].offset, 16u);
    EXPECT_EQ(items[1].peer, "c/1");
    EXPECT_EQ(early.bytes_of("c/1"), 32u);  // while somebody has them
  }
  EXPECT_EQ(early.bytes_of("c/1"), 0u);
  EXPECT(early.Take(KeyOf(1)).empty());
  EXPECT_EQ(early.Take(KeyOf(2))[0].peer, "");
}

TEST(AFailureTakesThePlaceOfItsSendersBytes) {
  EarlyTransfers early;
  early.Keep("c/1", KeyOf(1), 0, 32, kBytes, {});
  early.Keep("w/a", KeyOf(1), 0, 32, kBytes, {});
  early.KeepFailure("c/1", KeyOf(1), DataLoss("it broke"), true);
  const std::vector<EarlyTransfers::Item> items = early.Take(KeyOf(1));
  EXPECT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].peer, "w/a");
  EXPECT(items[1].failure.code() == Code::kDataLoss && items[1].more_may_come);
}

TEST(BeyondItsTransfersASendersKeysAreRefusedAndNobodyElses) {
  EarlyTransfers early;
  for (uint64_t n = 0; n < EarlyTransfers::kMaxTransfers + 2; ++n) early.Keep("c/1", KeyOf(1, n), 0, 16, kBytes, {});
  EXPECT_EQ(early.size(), EarlyTransfers::kMaxTransfers);
  EXPECT(early.MayHaveBeenLetGo("c/1", KeyOf(1, EarlyTransfers::kMaxTransfers)));
  EXPECT(!early.MayHaveBeenLetGo("c/1", KeyOf(1, 0)));
  EXPECT(!early.MayHaveBeenLetGo("c/2", KeyOf(1, EarlyTransfers::kMaxTransfers)));
}

TEST(NothingIsLeftOfAClientOrOfASender) {
  EarlyTransfers early;
  early.Keep("c/1", KeyOf(1), 0, 16, kBytes, {});
  early.Keep("c/1", KeyOf(2), 0, 16, kBytes, {});  // under another's key
  early.Keep("w/a", KeyOf(1, 8), 0, 16, kBytes, {});
  early.Keep("w/a", KeyOf(3), 0, 16, kBytes, {});
  EXPECT(early.ForgetClient(1, "c/1").empty());  // nothing was deferred
  EXPECT_EQ(early.size(), 1u);
  early.Forget("w/a");
  EXPECT_EQ(early.size(), 0u);
}

}  // namespace
}  // namespace pathways::worker
