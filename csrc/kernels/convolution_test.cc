// Convolutions by oneDNN against their definition. The numbers are small integers, so sums are exact in any order.
#include "csrc/kernels/convolution.h"

#include <algorithm>
#include <array>
#include <thread>

#include "csrc/kernels/kernel.h"
#include "csrc/kernels/onednn_api.h"
#include "csrc/kernels/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::kernels {
namespace {

Convolution Drawn(Draw& draw) {
  Convolution out;
  out.kind = static_cast<Convolution::Kind>(draw.Between(0, 2));
  const int64_t groups = draw.Between(0, 1) == 0 ? 1 : draw.Between(2, 5), spatial = draw.Between(1, 3),
                batch = draw.Between(1, 3);
  const int64_t in = draw.Between(0, 2) == 0 ? 1 : draw.Between(1, 9),
                made = draw.Between(0, 2) == 0 ? 1 : draw.Between(1, 9);
  std::vector<int64_t> source{batch, groups * in}, weights{groups, made, in}, target{batch, groups * made};
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t kernel = draw.Between(1, 3), dilation = draw.Between(1, 2), stride = draw.Between(1, 3),
                  low = draw.Between(0, 3);
    const int64_t size = draw.Between(1, 8), unused = draw.Between(0, stride - 1);
    const int64_t windows =
        std::max<int64_t>((size + low - (kernel - 1) * dilation - 1) / stride + draw.Between(0, 2), 1);
    source.push_back(size);
    weights.push_back(kernel);
    target.push_back(windows);
    out.stride.push_back(stride);
    out.dilation.push_back(dilation);
    out.low.push_back(low);
    out.high.push_back((windows - 1) * stride + (kernel - 1) * dilation + 1 - size - low + unused);
  }
  out.source = draw.Between(0, 2) == 0 ? draw.AnyOrder(source) : draw.AnyOrder(source, source.size());
  out.weights = draw.Between(0, 2) == 0 ? draw.AnyOrder(weights) : draw.AnyOrder(weights, weights.size());
  out.target = draw.Between(0, 2) == 0 ? draw.AnyOrder(target) : draw.AnyOrder(target, target.size());
  return out;
}

std::array<const StridedArray*, 3> Arrays(const Convolution& convolution) {
  return {&convolution.first(), &convolution.second(), &convolution.result()};
}

TEST(AConvolutionIsItsNumbers) {
  Draw draw(1);
  int decoded = 0;
  for (int i = 0; i < 2000; ++i) decoded += CheckNumbers(Drawn(draw), Arrays, draw) ? 1 : 0;
  EXPECT(decoded > 1000);
}

TEST(OnednnComputesWhatTheDefinitionSays) {
  if (OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(LoadOnednn(OnednnPath()));
  Draw draw(2);
  int computed = 0;
  for (int i = 0; i < 600; ++i) {
    const Convolution convolution = Drawn(draw);
    if (!Convolution::Decode(convolution.Encode()).ok()) continue;
    computed += CheckKernel(convolution, Arrays, ByDefinition, draw) ? 1 : 0;
  }
  EXPECT(computed > 400);
}

TEST(AKernelRunsOnSeveralThreadsAtOnce) {
  if (OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(LoadOnednn(OnednnPath()));
  Draw draw(3);
  Convolution convolution;
  convolution.source = draw.AnyOrder({2, 16, 9, 9}, 4);
  convolution.weights = draw.AnyOrder({2, 8, 8, 3, 3}, 5);
  convolution.target = draw.AnyOrder({2, 16, 9, 9}, 4);
  convolution.stride = convolution.dilation = convolution.low = convolution.high = {1, 1};
  for (const auto kind :
       {Convolution::Kind::kForward, Convolution::Kind::kInputGradient, Convolution::Kind::kWeightGradient}) {
    convolution.kind = kind;
    ASSERT_OK_AND_ASSIGN(const auto kernel, KernelFor(convolution.Encode(), 2));
    const auto first = draw.Values(convolution.first().ElementCount());
    const auto second = draw.Values(convolution.second().ElementCount());
    const std::vector<float> expected = ByDefinition(convolution, first, second);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        std::vector<char> room(static_cast<size_t>(kernel->room_bytes()) + 1);
        for (int i = 0; i < 20; ++i) {
          std::vector<float> result(expected.size());
          EXPECT_OK(kernel->Run(first.data(), second.data(), result.data(), room.data() + i % 2));
          EXPECT(result == expected);
          if (i % 2 == 0 && kernel->room_bytes() > 0) room[0] = 1;  // what a run leaves there counts for nothing
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(ALibraryThatIsNotOnednnIsRefused) {
  if (Onednn() != nullptr) return;  // another test has loaded it: then nothing more is loaded
  const Status missing = LoadOnednn("/nonexistent/libdnnl.so");
  EXPECT(!missing.ok());
  EXPECT_HAS(missing.ToString(), "install the package onednn-cpu-gomp");
  const Status other = LoadOnednn("libm.so.6");
  EXPECT_HAS(other.ToString(), "got a library without dnnl_version");
}

}  // namespace
}  // namespace pathways::kernels
