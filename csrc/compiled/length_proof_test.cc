#include "csrc/compiled/length_proof.h"

#include <limits>
#include <vector>

#include "csrc/testing/test.h"

namespace pathways::compiled {
namespace {

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(ALargerArrayAgreesWhereItBeginsLikeTheOther) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const TensorType small{DType::kF32, {2, 2}}, large{DType::kF32, {2, 3}};
  EXPECT(LengthProof::Agree(small, Floats({1, 2, 3, 4}), large, Floats({1, 2, 9, 3, 4, nan})));
  EXPECT(LengthProof::Agree(small, Floats({1, nan, 3, 4}), large, Floats({1, nan, 9, 3, 4.00001f, 9})));
  EXPECT(!LengthProof::Agree(small, Floats({1, 2, 3, 4}), large, Floats({1, 2, 9, 3, 4.01f, 9})));
  EXPECT(!LengthProof::Agree(small, Floats({1, 2, 3, 4}), large, Floats({1, nan, 9, 3, 4, 9})));
  EXPECT(!LengthProof::Agree(small, Floats({1, nan, 3, 4}), large, Floats({1, 2, 9, 3, 4, 9})));
  EXPECT(!LengthProof::Agree(small, Floats({1, 2, 3, 4}), {DType::kF32, {1, 4}}, Floats({1, 2, 3, 4})));
  const TensorType whole{DType::kS32, {1}};
  EXPECT(LengthProof::Agree(whole, {"\1\0\0\0", 4}, whole, {"\1\0\0\0", 4}));
  EXPECT(!LengthProof::Agree(whole, {"\1\0\0\0", 4}, whole, {"\2\0\0\0", 4}));
}

TEST(ContentsOfEveryTypeAreReadBackAsTheyAreAndNothingBehindThemIsANumber) {
  LengthProof proof;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kC64, DType::kC128, DType::kS64,
                            DType::kS32, DType::kU8, DType::kPred}) {
    const TensorType type{dtype, {3, 2}}, larger{dtype, {4, 2}};
    const std::string contents = proof.Contents(type);
    ASSERT_EQ(contents.size(), static_cast<size_t>(type.ByteSize()));
    const std::string padded = LengthProof::WithGarbage(type, contents, larger);
    ASSERT_EQ(padded.size(), static_cast<size_t>(larger.ByteSize()));
    EXPECT(padded.starts_with(contents));
    EXPECT(LengthProof::Agree(type, contents, larger, padded));
    if (dtype == DType::kPred) continue;
    EXPECT(!LengthProof::Agree(larger, contents + std::string(padded.size() - contents.size(), '\0'), larger, padded));
  }
}

}  // namespace
}  // namespace pathways::compiled
