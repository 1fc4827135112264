#include "csrc/hlo/op_sharding.h"

#include "csrc/base/proto.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

TEST(TilingsSurviveEncoding) {
  const Tiling whole = Tiling::Replicated(2, 4);
  EXPECT(EncodeOpSharding(whole).empty());
  ASSERT_OK_AND_ASSIGN(const Tiling copies, Tiling::Make({1, 2}, {0, 1, 0, 1}));
  ASSERT_OK_AND_ASSIGN(const Tiling turned, Tiling::Make({2, 2}, {0, 2, 1, 3}));
  for (const Tiling& tiling : {whole, Tiling::FirstDimension(2, 4), copies, turned}) {
    ASSERT_OK_AND_ASSIGN(const Tiling back, DecodeOpSharding(EncodeOpSharding(tiling), 2, 4));
    EXPECT(back == tiling);
  }
}

TEST(ShardingsAsTransposedIotas) {
  // {devices=[2,2]<=[2,2]T(1,0)}: the tiles in order lie on devices 0, 2, 1, 3.
  ProtoWriter proto;
  proto.Int64(1, 3);
  for (const int64_t dim : {2, 2}) proto.Int64(3, dim);
  for (const int64_t dim : {2, 2}) proto.Int64(9, dim);
  for (const int64_t axis : {1, 0}) proto.Int64(10, axis);
  ASSERT_OK_AND_ASSIGN(const Tiling tiling, DecodeOpSharding(proto.bytes(), 2, 4));
  EXPECT_EQ(std::vector<uint32_t>(tiling.tiles().begin(), tiling.tiles().end()), (std::vector<uint32_t>{0, 2, 1, 3}));
}

TEST(OtherShardingsAreRefused) {
  ProtoWriter one_device;
  one_device.Int64(1, 1);
  one_device.Int64(4, 0);
  EXPECT(!DecodeOpSharding(one_device.bytes(), 1, 2).ok());
  EXPECT(!DecodeOpSharding("\xff", 1, 2).ok());
  EXPECT(!DecodeOpSharding(EncodeOpSharding(Tiling::FirstDimension(1, 4)), 1, 2).ok());
}

TEST(ElementsOfATuple) {
  ProtoWriter tuple;
  tuple.Int64(1, 2);
  tuple.Bytes(5, EncodeOpSharding(Tiling::FirstDimension(1, 2)));
  tuple.Bytes(5, "");
  ASSERT_OK_AND_ASSIGN(const std::vector<Tiling> tilings, DecodeOpShardings(tuple.bytes(), {1, 2}, 2));
  EXPECT(tilings[0] == Tiling::FirstDimension(1, 2));
  EXPECT(tilings[1].is_replicated());
  ASSERT_OK_AND_ASSIGN(const std::vector<Tiling> nothing, DecodeOpShardings("", {1, 2}, 2));
  EXPECT(nothing[0].is_replicated() && nothing[1].is_replicated());
}

}  // namespace
}  // namespace pathways::hlo
