// Modules whose convolutions and products a kernel library computes, on a real plugin.
#include "csrc/pjrt/kernel_calls.h"

#include "csrc/hlo/convolution_test_support.h"
#include "csrc/hlo/dot_test_support.h"
#include "csrc/hlo/use_kernels.h"
#include "csrc/kernels/onednn_api.h"
#include "csrc/kernels/test_support.h"
#include "csrc/pjrt/custom_calls.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

TEST(ModulesWithKernelsComputeTheSame) {
  NEED_PLUGIN(client);
  if (kernels::OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(kernels::LoadOnednn(kernels::OnednnPath()));
  ASSERT_OK(RegisterCustomCalls(*client->api(), "cpu"));
  hlo::HloGenerator generator(14);
  int replaced = 0;
  for (int i = 0; i < 60; ++i) {
    const hlo::HloConvolution c = generator.Make();
    ASSERT_OK_AND_ASSIGN(const hlo::ModuleWithKernels edited,
                         hlo::UseKernels(hlo::ModuleOf(c), 2, hlo::Replace::kEverything));
    EXPECT_EQ(edited.convolutions + edited.left, 1u);
    if (edited.convolutions == 0) continue;
    ++replaced;
    const std::vector<float> a = generator.Numbers(c.left), b = generator.Numbers(c.right);
    ASSERT_OK_AND_ASSIGN(const auto result,
                         RunTwo(client, edited.module, {DType::kF32, c.left}, a, {DType::kF32, c.right}, b));
    EXPECT(result == hlo::HloByDefinition(c, a, b));
  }
  EXPECT(replaced > 25);
}

TEST(ModulesWithProductsComputeTheSame) {
  NEED_PLUGIN(client);
  if (kernels::OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(kernels::LoadOnednn(kernels::OnednnPath()));
  ASSERT_OK(RegisterCustomCalls(*client->api(), "cpu"));
  hlo::DotGenerator generator(21);
  int replaced = 0;
  for (int i = 0; i < 80; ++i) {
    const hlo::HloDot dot = generator.Make(i % 2 == 0 ? 5 : 12);
    ASSERT_OK_AND_ASSIGN(const hlo::ModuleWithKernels edited,
                         hlo::UseKernels(hlo::ModuleOf(dot), 2, hlo::Replace::kEverything));
    EXPECT_EQ(edited.products + edited.left, 1u);
    if (edited.products == 0) continue;
    ++replaced;
    const hlo::Indices a_dims = dot.Sizes(dot.stored_left), b_dims = dot.Sizes(dot.stored_right);
    const std::vector<float> a = generator.Numbers(a_dims), b = generator.Numbers(b_dims);
    ASSERT_OK_AND_ASSIGN(const auto result,
                         RunTwo(client, edited.module, {DType::kF32, a_dims}, a, {DType::kF32, b_dims}, b));
    EXPECT(result == hlo::ByDefinition(dot, a, b));
  }
  EXPECT(replaced > 50);
}

}  // namespace
}  // namespace pathways::pjrt
