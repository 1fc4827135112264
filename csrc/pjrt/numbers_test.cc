// Numbers of modules made their parameters: a real plugin computes the same with them.
#include "csrc/hlo/numbers.h"

#include <cmath>

#include "csrc/hlo/numbers_test_support.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

Result<std::vector<float>> RunNumbered(Client* client, const std::string& module,
                                       std::span<const hlo::ModuleNumber> numbers) {
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneDevice(""));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(module, "hlo", options));
  std::vector<Buffer> buffers;
  for (const float scale : {1.0f, -0.5f}) {
    std::vector<float> given(hlo::kNumbered);
    for (size_t i = 0; i < given.size(); ++i) given[i] = scale * (static_cast<float>(i) + 0.25f);
    PW_ASSIGN_OR_RETURN(Buffer buffer,
                        client->BufferFromHost(given.data(), TensorType{DType::kF32, {hlo::kNumbered}}, 0));
    buffers.push_back(std::move(buffer));
  }
  for (const hlo::ModuleNumber& number : numbers) {
    PW_ASSIGN_OR_RETURN(Buffer buffer, client->BufferFromHost(&number.bits, TensorType{number.dtype, {}}, 0));
    buffers.push_back(std::move(buffer));
  }
  PW_ASSIGN_OR_RETURN(const ExecuteOutputs outputs, ExecuteOn(*executable, buffers));
  return Fetch(outputs.buffers.at(0).at(0));
}

std::vector<size_t> Differing(const hlo::ModuleNumbers& a, const hlo::ModuleNumbers& b) {
  std::vector<size_t> out;
  for (size_t i = 0; i < a.numbers.size(); ++i) {
    if (a.numbers[i] != b.numbers[i]) out.push_back(i);
  }
  return out;
}

TEST(OneModuleComputesWhatAllOfItsFamilyDo) {
  NEED_PLUGIN(client);
  size_t opened = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const std::string first = hlo::RandomModule(seed, 1), second = hlo::RandomModule(seed, 2);
    ASSERT_OK_AND_ASSIGN(const hlo::ModuleNumbers one, hlo::ReadNumbers(first));
    ASSERT_OK_AND_ASSIGN(const hlo::ModuleNumbers two, hlo::ReadNumbers(second));
    EXPECT(one.skeleton == two.skeleton);
    ASSERT_EQ(one.numbers.size(), two.numbers.size());
    const std::vector<size_t> differing = Differing(one, two);
    opened += differing.size();
    ASSERT_OK_AND_ASSIGN(const std::string shared, hlo::WithNumbersAsParameters(first, differing));
    for (const auto& [module, read] : {std::pair(&first, &one), std::pair(&second, &two)}) {
      std::vector<hlo::ModuleNumber> numbers;
      for (const size_t position : differing) numbers.push_back(read->numbers[position]);
      ASSERT_OK_AND_ASSIGN(const std::vector<float> got, RunNumbered(client, shared, numbers));
      ASSERT_OK_AND_ASSIGN(const std::vector<float> want, RunNumbered(client, *module, {}));
      for (size_t i = 0; i < want.size(); ++i) EXPECT(std::abs(got[i] - want[i]) <= 1e-6f * (1 + std::abs(want[i])));
    }
  }
  EXPECT(opened > 60);
}

}  // namespace
}  // namespace pathways::pjrt
