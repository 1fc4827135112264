#include "csrc/base/tiling.h"

#include "csrc/testing/test.h"

namespace pathways {
namespace {

const TensorType kMatrix{DType::kF32, {10, 6}};

TEST(CopiesLieWholeOnEachDevice) {
  const Tiling tiling = Tiling::Replicated(2, 3);
  EXPECT(tiling.is_replicated());
  EXPECT(tiling.Divides(kMatrix.dims));
  EXPECT_EQ(tiling.ShardType(kMatrix), kMatrix);
  EXPECT_EQ(tiling.Holders(), std::vector<size_t>{0});
  EXPECT_EQ(tiling.BoxOf(kMatrix, 0).size, kMatrix.dims);
}

TEST(PartsThatDoNotDivideArePadded) {
  const Tiling tiling = Tiling::FirstDimension(2, 4);
  EXPECT(!tiling.Divides(kMatrix.dims));
  EXPECT_EQ(tiling.ShardType(kMatrix), (TensorType{DType::kF32, {3, 6}}));
  const Tiling::Box last = tiling.BoxOf(kMatrix, 3);
  EXPECT_EQ(last.start, (std::vector<int64_t>{9, 0}));
  EXPECT_EQ(last.size, (std::vector<int64_t>{1, 6}));
  // Five rows over four devices: two each, and nothing is left for the last.
  EXPECT(tiling.BoxOf({DType::kF32, {5, 1}}, 3).is_empty());
}

TEST(SeveralDevicesMayHoldATile) {
  ASSERT_OK_AND_ASSIGN(const Tiling tiling, Tiling::Make({1, 2}, {0, 1, 0, 1}));
  EXPECT_EQ(tiling.Holders(), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(tiling.BoxOf(kMatrix, 1).start, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(tiling.ToString(), std::string("{1,2 of 4}"));
}

TEST(WhatIsNoTilingIsRefused) {
  EXPECT(!Tiling::Make({2}, {0, 0}).ok());
  EXPECT(!Tiling::Make({2}, {0, 2}).ok());
  EXPECT(!Tiling::Make({0}, {0}).ok());
  EXPECT(!Tiling::Make({4}, {0, 1}).ok());
  EXPECT(!Tiling::Make({}, {}).ok());
  EXPECT(Tiling::Make({}, {0}).ok());
}

TEST(EqualTilingsAreOneObject) {
  const TilingPtr one = Intern(Tiling::FirstDimension(2, 2));
  EXPECT_EQ(one.get(), Intern(Tiling::FirstDimension(2, 2)).get());
  EXPECT(one.get() != Intern(Tiling::Replicated(2, 2)).get());
}

}  // namespace
}  // namespace pathways
