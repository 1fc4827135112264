#include "csrc/values/host_layout.h"

#include <cstdint>
#include <numeric>

#include "csrc/testing/test.h"

namespace pathways::values {
namespace {

PJRT_Buffer_MemoryLayout Permuted(const std::vector<int64_t>& minor_to_major) {
  PJRT_Buffer_MemoryLayout layout{};
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled = {};
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  return layout;
}

TEST(RowMajorIsRecognizedWhateverTheStridesOfSingletons) {
  const TensorType type{DType::kF32, {2, 1, 3}};
  EXPECT(RowMajorStrides(type) == (ByteStrides{12, 12, 4}));
  EXPECT(IsRowMajor(type, ByteStrides{12, 999, 4}));
  EXPECT(!IsRowMajor(type, ByteStrides{4, 4, 8}));
  EXPECT(IsRowMajor(TensorType{DType::kF32, {}}, ByteStrides{}));
}

TEST(APermutedLayoutGivesItsStrides) {
  const TensorType type{DType::kS16, {2, 3, 4}};
  const std::vector<int64_t> order = {0, 2, 1};
  const PJRT_Buffer_MemoryLayout layout = Permuted(order);
  Result<ByteStrides> strides = StridesOf(&layout, type);
  ASSERT_OK(strides);
  EXPECT(*strides == (ByteStrides{2, 16, 4}));
  EXPECT_EQ(CheckDeviceLayout(&layout, type).code(), Code::kUnimplemented);
}

TEST(LayoutsThatAreNoPermutationAreRefused) {
  const TensorType type{DType::kF32, {2, 3}};
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 0}, {0, 2}, {-1, 0}, {0}}) {
    const PJRT_Buffer_MemoryLayout layout = Permuted(order);
    EXPECT_EQ(StridesOf(&layout, type).status().code(), Code::kInvalidArgument);
  }
  const std::vector<int64_t> order = {1, 0};
  PJRT_Buffer_MemoryLayout tiled = Permuted(order);
  tiled.tiled.num_tiles = 1;
  EXPECT_EQ(StridesOf(&tiled, type).status().code(), Code::kUnimplemented);
}

TEST(ElementsAreCopiedBetweenAnyStrides) {
  for (DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kC64, DType::kC128}) {
    const TensorType type{dtype, {2, 3, 4}};
    const int64_t bytes = DTypeBytes(dtype);
    std::vector<uint8_t> dense(static_cast<size_t>(type.ByteSize()));
    std::iota(dense.begin(), dense.end(), uint8_t{0});
    const std::vector<int64_t> order = {1, 0, 2};
    const PJRT_Buffer_MemoryLayout layout = Permuted(order);
    Result<ByteStrides> strides = StridesOf(&layout, type);
    ASSERT_OK(strides);
    std::vector<uint8_t> permuted(dense.size()), back(dense.size());
    CopyElements(type, dense.data(), RowMajorStrides(type), permuted.data(), *strides);
    // Element (1, 2, 3): row-major 23, with dimension 1 minor and dimension 2 major 3 * 6 + 1 * 3 + 2.
    EXPECT_EQ(permuted[static_cast<size_t>(23 * bytes)], dense[static_cast<size_t>(23 * bytes)]);
    EXPECT_EQ(permuted[static_cast<size_t>(1 * bytes)], dense[static_cast<size_t>(4 * bytes)]);
    CopyElements(type, permuted.data(), *strides, back.data(), RowMajorStrides(type));
    EXPECT(back == dense);
  }
}

TEST(NegativeAndZeroStridesRead) {
  const TensorType type{DType::kS32, {2, 3}};
  const std::vector<int32_t> from = {1, 2, 3};
  std::vector<int32_t> to(6);
  // Both rows are the same one, read from its end.
  CopyElements(type, &from[2], ByteStrides{0, -4}, to.data(), RowMajorStrides(type));
  EXPECT(to == (std::vector<int32_t>{3, 2, 1, 3, 2, 1}));
}

TEST(EmptyArraysAndScalars) {
  CopyElements(TensorType{DType::kF32, {0, 3}}, nullptr, ByteStrides{12, 4}, nullptr, ByteStrides{12, 4});
  const double from = 2.5;
  double to = 0;
  CopyElements(TensorType{DType::kF64, {}}, &from, ByteStrides{}, &to, ByteStrides{});
  EXPECT_EQ(to, 2.5);
}

TEST(TypesThatAreNotCarriedAreRefusedByNumber) {
  const int64_t dims[] = {4};
  EXPECT_EQ(TypeFromC(PJRT_Buffer_Type_S4, dims, 1).status().code(), Code::kUnimplemented);
  EXPECT_EQ(TypeFromC(PJRT_Buffer_Type_TOKEN, dims, 1).status().code(), Code::kUnimplemented);
  EXPECT_EQ(TypeFromC(PJRT_Buffer_Type_F32, nullptr, 1).status().code(), Code::kInvalidArgument);
  const int64_t negative[] = {-1};
  EXPECT(!TypeFromC(PJRT_Buffer_Type_F32, negative, 1).ok());
  ASSERT_OK(TypeFromC(PJRT_Buffer_Type_BF16, dims, 1));
}

}  // namespace
}  // namespace pathways::values
