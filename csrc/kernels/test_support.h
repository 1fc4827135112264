// What the tests of kernels share: random arrays, convolutions computed by their definition, and the two checks that
// each operation has to pass.
//
// Threads: the tests'.
#ifndef PTPATHWAYS_KERNELS_TEST_SUPPORT_H_
#define PTPATHWAYS_KERNELS_TEST_SUPPORT_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "csrc/kernels/convolution.h"
#include "csrc/kernels/kernel.h"
#include "csrc/testing/test.h"

namespace pathways::kernels {

// Steps `index` through an array of these sizes; false after the last.
inline bool NextIndex(const std::vector<int64_t>& dims, std::vector<int64_t>* index) {
  for (size_t i = dims.size(); i-- > 0;) {
    if (++(*index)[i] < dims[i]) return true;
    (*index)[i] = 0;
  }
  return false;
}

inline size_t OffsetOf(const StridedArray& array, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * array.strides[i];
  return static_cast<size_t>(offset);
}

// What the convolution makes of the two arrays, which lie in memory as it says.
inline std::vector<float> ByDefinition(const Convolution& convolution, const std::vector<float>& first,
                                       const std::vector<float>& second) {
  std::vector<float> result(static_cast<size_t>(convolution.result().ElementCount()));
  const std::vector<int64_t>& weights = convolution.weights.dims;
  std::vector<int64_t> loop{convolution.target.dims[0]};  // batch, group, out, in, kernel..., target...
  loop.insert(loop.end(), weights.begin(), weights.end());
  loop.insert(loop.end(), convolution.target.dims.begin() + 2, convolution.target.dims.end());
  const size_t spatial = convolution.spatial();
  std::vector<int64_t> at(loop.size()), source(spatial + 2), kernel(spatial + 3), target(spatial + 2);
  do {
    source[0] = target[0] = at[0];
    source[1] = at[1] * weights[2] + at[3];
    target[1] = at[1] * weights[1] + at[2];
    kernel[0] = at[1], kernel[1] = at[2], kernel[2] = at[3];
    bool inside = true;
    for (size_t i = 0; i < spatial; ++i) {
      kernel[i + 3] = at[4 + i];
      target[i + 2] = at[4 + spatial + i];
      source[i + 2] =
          target[i + 2] * convolution.stride[i] + kernel[i + 3] * convolution.dilation[i] - convolution.low[i];
      inside = inside && source[i + 2] >= 0 && source[i + 2] < convolution.source.dims[i + 2];
    }
    if (!inside) continue;
    const size_t s = OffsetOf(convolution.source, source), w = OffsetOf(convolution.weights, kernel),
                 t = OffsetOf(convolution.target, target);
    if (convolution.kind == Convolution::Kind::kForward) result[t] += first[s] * second[w];
    if (convolution.kind == Convolution::Kind::kInputGradient) result[s] += first[t] * second[w];
    if (convolution.kind == Convolution::Kind::kWeightGradient) result[w] += first[s] * second[t];
  } while (NextIndex(loop, &at));
  return result;
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}

  int64_t Between(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random_); }
  std::vector<float> Values(int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& value : out) value = static_cast<float>(Between(-4, 4));
    return out;
  }
  // An array whose dimensions lie in memory in any order, but for the last `in_place`.
  StridedArray AnyOrder(std::vector<int64_t> dims, size_t in_place = 0) {
    std::vector<size_t> order(dims.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end() - static_cast<std::ptrdiff_t>(in_place), random_);
    StridedArray out{std::move(dims), {}};
    out.strides.resize(out.dims.size());
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      out.strides[order[i]] = stride;
      stride *= out.dims[order[i]];
    }
    return out;
  }

 private:
  std::mt19937 random_;
};

// An operation is its numbers; and of any numbers, what is accepted describes `arrays` within their elements. False:
// its own are not accepted.
template <typename Operation, typename Arrays>
bool CheckNumbers(const Operation& operation, Arrays arrays, Draw& draw) {
  std::vector<int64_t> numbers = operation.Encode();
  const Result<Operation> back = Operation::Decode(numbers);
  if (back.ok()) EXPECT(*back == operation);
  numbers[static_cast<size_t>(draw.Between(0, static_cast<int64_t>(numbers.size()) - 1))] =
      draw.Between(0, 3) == 0 ? draw.Between(-(int64_t{1} << 62), int64_t{1} << 62) : draw.Between(-3, 9);
  if (const Result<Operation> changed = Operation::Decode(numbers); changed.ok()) {
    for (const StridedArray* array : arrays(*changed)) {
      std::vector<int64_t> last = array->dims;
      for (int64_t& dim : last) --dim;
      EXPECT(OffsetOf(*array, last) < static_cast<size_t>(array->ElementCount()));
    }
    numbers.pop_back();
    EXPECT(!Operation::Decode(numbers).ok());
  }
  return back.ok();
}

// Its kernel computes what `defined` does. False: there is none.
template <typename Operation, typename Arrays, typename Defined>
bool CheckKernel(const Operation& operation, Arrays arrays, Defined defined, Draw& draw) {
  const auto kernel = KernelFor(operation.Encode(), draw.Between(1, 3));
  if (!kernel.ok()) return false;
  const auto [first, second, made] = arrays(operation);
  const auto left = draw.Values(first->ElementCount()), right = draw.Values(second->ElementCount());
  std::vector<float> result(static_cast<size_t>(made->ElementCount()), 1e30f);
  std::vector<char> room(static_cast<size_t>((*kernel)->room_bytes()), 0x7f);
  EXPECT_OK((*kernel)->Run(left.data(), right.data(), result.data(), room.data()));
  if (result == defined(operation, left, right)) return true;
  std::string text;
  for (const int64_t number : operation.Encode()) text += std::to_string(number) + " ";
  testing::Fail(__FILE__, __LINE__, (*kernel)->name() + " differs: " + text);
  return true;
}

// oneDNN's library for tests (PW_ONEDNN), or empty when none is at hand.
inline std::string OnednnPath() {
  const char* const path = std::getenv("PW_ONEDNN");
  return path == nullptr ? "" : path;
}

}  // namespace pathways::kernels

#endif  // PTPATHWAYS_KERNELS_TEST_SUPPORT_H_
