// Products of matrices by oneDNN against their definition. The numbers are small integers, so sums are exact in any
// order.
#include "csrc/kernels/product.h"

#include <array>
#include <bit>

#include "csrc/kernels/kernel.h"
#include "csrc/kernels/onednn_api.h"
#include "csrc/kernels/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::kernels {
namespace {

// Operands in any order of dimensions, results with their columns in one piece.
Product DrawnProduct(Draw& draw) {
  const int64_t batch = draw.Between(0, 1) == 0 ? 1 : draw.Between(2, 5);
  const auto size = [&draw] { return draw.Between(0, 4) == 0 ? 1 : draw.Between(1, 70); };
  const int64_t rows = size(), inner = size(), columns = size();
  Product out;
  out.left = draw.AnyOrder({batch, rows, inner});
  out.right = draw.AnyOrder({batch, inner, columns});
  out.result = draw.AnyOrder({batch, rows, columns}, 1);
  return out;
}

std::array<const StridedArray*, 3> ProductArrays(const Product& product) {
  return {&product.left, &product.right, &product.result};
}

std::vector<float> ProductByDefinition(const Product& product, const std::vector<float>& left,
                                       const std::vector<float>& right) {
  std::vector<float> result(static_cast<size_t>(product.result.ElementCount()));
  for (int64_t b = 0; b < product.batch(); ++b) {
    for (int64_t i = 0; i < product.rows(); ++i) {
      for (int64_t j = 0; j < product.columns(); ++j) {
        float sum = 0;
        for (int64_t k = 0; k < product.inner(); ++k) {
          sum += left[OffsetOf(product.left, {b, i, k})] * right[OffsetOf(product.right, {b, k, j})];
        }
        result[OffsetOf(product.result, {b, i, j})] = sum;
      }
    }
  }
  return result;
}

TEST(AProductIsItsNumbers) {
  Draw draw(1);
  for (int i = 0; i < 2000; ++i) EXPECT(CheckNumbers(DrawnProduct(draw), ProductArrays, draw));
}

TEST(OnednnMultipliesAsTheDefinitionSays) {
  if (OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(LoadOnednn(OnednnPath()));
  Draw draw(2);
  int computed = 0;
  for (int i = 0; i < 300; ++i)
    computed += CheckKernel(DrawnProduct(draw), ProductArrays, ProductByDefinition, draw) ? 1 : 0;
  EXPECT(computed > 200);
}

TEST(OnednnMultipliesBfloat16) {
  if (OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(LoadOnednn(OnednnPath()));
  Draw draw(3);
  int computed = 0;
  const auto halves = [](const std::vector<float>& values) {
    std::vector<uint16_t> out;
    for (const float value : values) out.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    return out;
  };
  for (int i = 0; i < 100; ++i) {
    Product product = DrawnProduct(draw);
    product.dtype = DType::kBF16;
    if (product.inner() > 15) continue;  // what bfloat16 holds exactly: 15 * 4 * 4 < 256
    const auto kernel = KernelFor(product.Encode(), 2);
    if (!kernel.ok()) continue;  // left to XLA, as on a processor that has no such arithmetic
    const auto left = draw.Values(product.left.ElementCount());
    const auto right = draw.Values(product.right.ElementCount());
    std::vector<uint16_t> result(static_cast<size_t>(product.result.ElementCount()));
    std::vector<char> room(static_cast<size_t>((*kernel)->room_bytes()));
    ASSERT_OK((*kernel)->Run(halves(left).data(), halves(right).data(), result.data(), room.data()));
    ++computed;
    EXPECT(result == halves(ProductByDefinition(product, left, right)));
  }
  if (computed == 0) return testing::Skip("this processor has no arithmetic of bfloat16 that oneDNN uses");
}

}  // namespace
}  // namespace pathways::kernels
