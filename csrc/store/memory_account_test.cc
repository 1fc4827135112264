#include "csrc/store/memory_account.h"

#include "csrc/testing/test.h"

namespace pathways::store {
namespace {

TEST(RefusesWhatDoesNotFitAndSaysTheSizes) {
  MemoryAccount account({1 << 20, 0});
  ASSERT_OK(account.Check(0, 1 << 20, 0, "x"));
  account.Add(0, 1, 1 << 19);
  Status status = account.Check(0, 1 << 20, 0, "a tensor f32[262144]");
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT(status.message().find("1.00 MiB") != std::string_view::npos);
  EXPECT(status.message().find("512.00 KiB free") != std::string_view::npos);
  EXPECT(account.Check(0, 2 << 20, 0, "x").message().find("never fit") != std::string_view::npos);
  EXPECT_EQ(account.Check(0, 0, 1 << 20, "x").code(), Code::kResourceExhausted);
  ASSERT_OK(account.Check(1, int64_t{1} << 40, 0, "no limit"));
}

TEST(KeepsAccountsPerClient) {
  MemoryAccount account({100, 100});
  account.Add(0, 1, 30);
  account.Add(1, 1, 20);
  account.Add(1, 2, 5);
  EXPECT_EQ(account.used_by(1), 50);
  EXPECT_EQ(account.total_used(), 55);
  account.Remove(1, 1, 20);
  EXPECT_EQ(account.used(1), 5);
  EXPECT_EQ(account.peak(1), 25);
  account.Remove(0, 1, 30);
  EXPECT_EQ(account.used_by(1), 0);
}

}  // namespace
}  // namespace pathways::store
