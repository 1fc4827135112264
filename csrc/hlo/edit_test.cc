#include "csrc/hlo/edit.h"

#include "csrc/hlo/hlo.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

TEST(CountsMustAgree) {
  const std::vector<ShardingBytes> three(3);
  EXPECT_HAS(AnnotateShardings(SumAndDifference(), three, {}).status().ToString(), "2 parameters");
  EXPECT_HAS(AnnotateShardings(SumAndDifference(), {}, three).status().ToString(), "2 results");
  EXPECT(AnnotateShardings("not a module", {}, {}).status().code() == Code::kInvalidArgument);
}

TEST(DonorsAreSet) {
  const std::vector<int64_t> both = {1, 0, 1};
  ASSERT_OK_AND_ASSIGN(const std::string module, SetDonors(SumAndDifference(), both));
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(module));
  EXPECT(info.donated_parameters == (std::vector<int64_t>{0, 1}));
  ASSERT_OK_AND_ASSIGN(const std::string none, SetDonors(module, {}));
  ASSERT_OK_AND_ASSIGN(const auto cleared, ReadHloModule(none));
  EXPECT(cleared.donated_parameters.empty());
  const std::vector<int64_t> beyond = {2};
  EXPECT_HAS(SetDonors(module, beyond).status().ToString(), "2 parameters");
}

TEST(AFixedPartitionMeetsNobody) {
  ASSERT_OK_AND_ASSIGN(const auto before, ReadHloModule(WithPartitionId()));
  EXPECT(before.has_cross_device_instructions);
  ASSERT_OK_AND_ASSIGN(const std::string module, FixPartition(WithPartitionId(), 5));
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(module));
  EXPECT(!info.has_cross_device_instructions);
}

}  // namespace
}  // namespace pathways::hlo
