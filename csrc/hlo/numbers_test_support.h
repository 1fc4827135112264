// What tests of the numbers of modules share: random modules.
//
// Ownership: plain values. Threads: the tests'.
#ifndef PTPATHWAYS_HLO_NUMBERS_TEST_SUPPORT_H_
#define PTPATHWAYS_HLO_NUMBERS_TEST_SUPPORT_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "csrc/hlo/test_hlo.h"

namespace pathways::hlo {

inline constexpr int64_t kNumbered = 6;

// A module of f32[6] -> f32[6] whose structure comes from one seed and whose numbers from another. Of `kept` numbers
// only a seed decides too: those that belong to the skeleton.
inline std::string RandomModule(uint32_t structure_seed, uint32_t number_seed) {
  std::mt19937 structure(structure_seed), numbers(number_seed);
  const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(structure); };
  const auto index = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(numbers); };
  const auto real = [&] { return std::uniform_real_distribution<float>(-2, 2)(numbers); };
  HloBuilder builder;
  const std::string vector = F32({kNumbered}), scalar = F32({});
  std::vector<int64_t> values{builder.Parameter(vector), builder.Parameter(vector)};
  const auto spread = [&](int64_t number) { return builder.Add("broadcast", vector, {number}); };
  const int steps = 2 + pick(8);
  for (int i = 0; i < steps; ++i) {
    const int64_t a = values[static_cast<size_t>(pick(static_cast<int>(values.size())))];
    const int64_t b = values[static_cast<size_t>(pick(static_cast<int>(values.size())))];
    switch (pick(11)) {
      case 0: {  // part of one in the other
        const int64_t size = 1 + pick(kNumbered - 1);
        const int64_t from = index(kNumbered - size + 1);
        const int64_t part = builder.Add("slice", F32({size}), {a}, SliceOf(from, from + size, 1));
        const int64_t to =
            builder.Add("constant", ShapeProto(5, {}), {}, IndexConstant(index(kNumbered + 3)));  // clamped
        values.push_back(builder.Add("dynamic-update-slice", vector, {b, part, to}));
        break;
      }
      case 1:
        values.push_back(
            builder.Add("multiply", vector, {a, spread(builder.Add("constant", scalar, {}, FloatConstant(real())))}));
        break;
      case 2:
        values.push_back(
            builder.Add("add", vector, {a, spread(builder.Add("constant", scalar, {}, FloatConstant(real())))}));
        break;
      case 3:
        values.push_back(builder.Add("maximum", vector, {a, b}));
        break;
      case 4: {  // a divisor belongs to the skeleton
        const float divisor = static_cast<float>(2 + pick(3));
        values.push_back(
            builder.Add("divide", vector, {a, spread(builder.Add("constant", scalar, {}, FloatConstant(divisor)))}));
        break;
      }
      case 5:  // what stands above it does not
        values.push_back(builder.Add("divide", vector,
                                     {spread(builder.Add("constant", scalar, {}, FloatConstant(real()))),
                                      spread(builder.Add("constant", scalar, {}, FloatConstant(4)))}));
        break;
      case 6: {  // with a stride: it stays
        const int64_t part = builder.Add("slice", F32({2}), {a}, SliceOf(1, 5, 2));
        const int64_t to = builder.Add("constant", ShapeProto(5, {}), {}, IndexConstant(index(kNumbered - 1)));
        values.push_back(builder.Add("dynamic-update-slice", vector, {b, part, to}));
        break;
      }
      case 8: {  // put somewhere; what is around it belongs to the skeleton
        const int64_t size = 1 + pick(kNumbered - 1);
        const int64_t part = builder.Add("slice", F32({size}), {a}, SliceOf(0, size, 1));
        const int64_t around = builder.Add("constant", scalar, {}, FloatConstant(static_cast<float>(pick(3))));
        const int64_t low = index(kNumbered - size + 1);
        values.push_back(builder.Add("pad", vector, {part, around}, PaddingOf(low, kNumbered - size - low)));
        break;
      }
      case 9: {  // cut, and padded on one side: it stays
        values.push_back(builder.Add("pad", vector, {a, builder.Add("constant", scalar, {}, FloatConstant(0.5f))},
                                     PaddingOf(-1, 1)));
        break;
      }
      case 7: {  // one number of several uses
        const int64_t number = spread(builder.Add("constant", scalar, {}, FloatConstant(real())));
        values.push_back(builder.Add("subtract", vector, {builder.Add("multiply", vector, {a, number}), number}));
        break;
      }
      default:
        values.push_back(builder.Add("subtract", vector, {a, b}));
    }
  }
  builder.Add("negate", vector, {values.back()});
  return builder.Build("random" + std::to_string(number_seed));
}

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_NUMBERS_TEST_SUPPORT_H_
