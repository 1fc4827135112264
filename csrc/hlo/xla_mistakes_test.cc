#include "csrc/hlo/xla_mistakes.h"

#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

constexpr MetBy kEverything{true, true};

TEST(OtherModulesStayAsTheyAre) {
  HloBuilder sum;
  const int64_t x = sum.Parameter(F32({4}));
  ProtoWriter fields;
  fields.Int64(14, 0);
  fields.Int64(38, HloBuilder::kReduction);
  sum.Add("reduce", F32({}), {x, sum.Zero()}, std::string(fields.bytes()));
  const std::string module = sum.Build("sum");
  ASSERT_OK_AND_ASSIGN(const std::string same, AvoidXlaMistakes(module, kEverything));
  EXPECT(same == module);
  HloBuilder integers("maximum");
  const int64_t n = integers.Parameter(ShapeProto(4, {4}));
  integers.Add("reduce", ShapeProto(4, {}), {n, integers.Add("constant", ShapeProto(4, {}), {}, "")},
               std::string(fields.bytes()));
  ASSERT_OK_AND_ASSIGN(const std::string whole, AvoidXlaMistakes(integers.Build("whole"), kEverything));
  EXPECT(whole == integers.Build("whole"));
  const std::string extreme = ExtremeOfColumns("maximum", 8, 3);
  ASSERT_OK_AND_ASSIGN(const std::string alone, AvoidXlaMistakes(extreme, {}));
  EXPECT(alone == extreme);
  EXPECT_EQ(AvoidXlaMistakes("no module", kEverything).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace pathways::hlo
