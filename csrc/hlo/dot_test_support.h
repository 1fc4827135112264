// What tests of products of matrices share: random dots, modules of one, and what it computes by its definition.
//
// Ownership: plain values. Threads: the tests'.
#ifndef PTPATHWAYS_HLO_DOT_TEST_SUPPORT_H_
#define PTPATHWAYS_HLO_DOT_TEST_SUPPORT_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/kernels/strided_array.h"
#include "csrc/kernels/test_support.h"

namespace pathways::hlo {

using Indices = std::vector<int64_t>;

// A dot of which every dimension has a letter: sizes by letter, and each array's letters in its order.
struct HloDot {
  std::array<int64_t, 128> size{};
  std::string left, right, result, batch, contracting;
  std::string stored_left, stored_right;  // the parameters' letters: transposed to the dot's operands
  std::string wanted;                     // the result's letters after a transpose; empty: none follows

  Indices Sizes(const std::string& letters) const {
    Indices out;
    for (const char letter : letters) out.push_back(size[static_cast<size_t>(letter)]);
    return out;
  }
};

inline Indices Places(const std::string& of, const std::string& in) {
  Indices out;
  for (const char letter : of) out.push_back(static_cast<int64_t>(in.find(letter)));
  return out;
}

class DotGenerator {
 public:
  explicit DotGenerator(uint32_t seed) : random_(seed) {}

  int64_t Between(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random_); }

  HloDot Make(int64_t largest) {
    HloDot out;
    const auto letters = [&](const std::string& from, int64_t most) {
      const std::string some = from.substr(0, static_cast<size_t>(Between(0, most)));
      for (const char letter : some) {
        out.size[static_cast<size_t>(letter)] = Between(0, 4) == 0 ? 1 : Between(1, largest);
      }
      return some;
    };
    out.batch = letters("bc", 2);
    out.contracting = letters("kl", 2);
    const std::string rows = letters("mn", 2), columns = letters("xy", 2);
    out.left = Shuffled(out.batch + rows + out.contracting);
    out.right = Shuffled(out.batch + out.contracting + columns);
    out.result = out.batch;
    for (const char letter : out.left)
      out.result += rows.find(letter) == std::string::npos ? "" : std::string(1, letter);
    for (const char letter : out.right) {
      out.result += columns.find(letter) == std::string::npos ? "" : std::string(1, letter);
    }
    out.stored_left = Between(0, 1) == 0 ? out.left : Shuffled(out.left);
    out.stored_right = Between(0, 1) == 0 ? out.right : Shuffled(out.right);
    if (Between(0, 1) == 0) out.wanted = Shuffled(out.result);
    return out;
  }

  std::vector<float> Numbers(const Indices& dims) {
    std::vector<float> out(static_cast<size_t>(kernels::StridedArray{dims, {}}.ElementCount()));
    for (float& value : out) value = static_cast<float>(Between(-4, 4));
    return out;
  }

 private:
  std::string Shuffled(std::string letters) {
    std::shuffle(letters.begin(), letters.end(), random_);
    return letters;
  }
  std::mt19937 random_;
};

inline std::string DotFields(const HloDot& dot) {
  ProtoWriter numbers, out;
  for (const int64_t dim : Places(dot.contracting, dot.left)) numbers.Int64(1, dim);
  for (const int64_t dim : Places(dot.contracting, dot.right)) numbers.Int64(2, dim);
  for (const int64_t dim : Places(dot.batch, dot.left)) numbers.Int64(3, dim);
  for (const int64_t dim : Places(dot.batch, dot.right)) numbers.Int64(4, dim);
  out.Bytes(30, numbers.bytes());
  return std::move(out).Take();
}

inline std::string DimensionFields(const Indices& dims) {
  ProtoWriter out;
  for (const int64_t dim : dims) out.Int64(14, dim);
  return std::move(out).Take();
}

inline std::string ModuleOf(const HloDot& dot) {
  HloBuilder builder;
  const auto operand = [&](int64_t parameter, const std::string& stored, const std::string& seen) {
    if (stored == seen) return parameter;
    return builder.Add("transpose", F32(dot.Sizes(seen)), {parameter}, DimensionFields(Places(seen, stored)));
  };
  const int64_t a = builder.Parameter(F32(dot.Sizes(dot.stored_left)));
  const int64_t b = builder.Parameter(F32(dot.Sizes(dot.stored_right)));
  const int64_t left = operand(a, dot.stored_left, dot.left), right = operand(b, dot.stored_right, dot.right);
  const int64_t made = builder.Add("dot", F32(dot.Sizes(dot.result)), {left, right}, DotFields(dot));
  if (!dot.wanted.empty()) {
    builder.Add("transpose", F32(dot.Sizes(dot.wanted)), {made}, DimensionFields(Places(dot.wanted, dot.result)));
  }
  return builder.Build("one_dot");
}

// Of row-major arrays with the parameters' letters, as one with the letters of the module's result.
inline std::vector<float> ByDefinition(const HloDot& dot, const std::vector<float>& left,
                                       const std::vector<float>& right) {
  const std::string made = dot.wanted.empty() ? dot.result : dot.wanted;
  const std::string all = made + dot.contracting;
  const auto offset = [&](const std::string& letters, const Indices& at) {
    int64_t out = 0;
    for (const char letter : letters) out = out * dot.size[static_cast<size_t>(letter)] + at[all.find(letter)];
    return static_cast<size_t>(out);
  };
  std::vector<float> result(static_cast<size_t>(kernels::StridedArray{dot.Sizes(made), {}}.ElementCount()));
  const Indices sizes = dot.Sizes(all);
  Indices at(all.size());
  do {
    result[offset(made, at)] += left[offset(dot.stored_left, at)] * right[offset(dot.stored_right, at)];
  } while (kernels::NextIndex(sizes, &at));
  return result;
}

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_DOT_TEST_SUPPORT_H_
