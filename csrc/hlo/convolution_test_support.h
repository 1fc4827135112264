// What tests of convolutions share: random ones, modules of one, and what it computes by its definition.
//
// Ownership: plain values. Threads: the tests'.
#ifndef PTPATHWAYS_HLO_CONVOLUTION_TEST_SUPPORT_H_
#define PTPATHWAYS_HLO_CONVOLUTION_TEST_SUPPORT_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/kernels/strided_array.h"
#include "csrc/kernels/test_support.h"

namespace pathways::hlo {

// An HLO convolution, as its definition reads it.
struct HloConvolution {
  std::vector<int64_t> left, right, result;  // sizes
  std::vector<int64_t> left_roles, right_roles,
      result_roles;  // dimensions: batch, feature, ...; out, in, ...; batch, ...
  std::vector<int64_t> stride, low, high, dilation, base_dilation, turned;
  int64_t feature_groups = 1, batch_groups = 1;
  bool reverse_instruction = false;  // turns round all spatial dimensions of the right operand first

  size_t spatial() const { return stride.size(); }
};

class HloGenerator {
 public:
  explicit HloGenerator(uint32_t seed) : random_(seed) {}

  int64_t Between(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random_); }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }

  std::vector<float> Numbers(const std::vector<int64_t>& dims) {
    std::vector<float> out(static_cast<size_t>(kernels::StridedArray{dims, {}}.ElementCount()));
    for (float& value : out) value = static_cast<float>(Between(-4, 4));
    return out;
  }

  // Of any kind that HLO allows, many of them shaped as gradients are.
  HloConvolution Make() {
    HloConvolution out;
    const int64_t spatial = Between(1, 3);
    const int64_t kind = Between(0, 3);
    if (OneIn(3)) (kind == 2 ? out.batch_groups : out.feature_groups) = Between(2, 3);
    const int64_t in = Between(1, 3), made = Between(1, 3) * out.feature_groups * out.batch_groups;
    const int64_t batch = Between(1, 3);
    std::vector<int64_t> left{batch * out.batch_groups, in * out.feature_groups}, right{made, in}, result{batch, made};
    for (int64_t i = 0; i < spatial; ++i) {
      const int64_t size = Between(1, 7), kernel = kind == 2 ? Between(2, 6) : Between(1, 3);
      out.stride.push_back(kind == 1 || OneIn(2) ? 1 : Between(1, 3));
      out.dilation.push_back(OneIn(2) ? 1 : Between(1, 3));
      out.base_dilation.push_back(kind == 1 || OneIn(6) ? Between(1, 3) : 1);
      out.turned.push_back(OneIn(5) ? 1 : 0);
      out.low.push_back(Between(-2, 4));
      const int64_t reach = (kernel - 1) * out.dilation.back() + 1;
      const int64_t dilated = (size - 1) * out.base_dilation.back() + 1;
      out.high.push_back(Between(-2, 4));
      out.high.back() = std::max(out.high.back(), reach - dilated - out.low.back());
      left.push_back(size);
      right.push_back(kernel);
      result.push_back((dilated + out.low.back() + out.high.back() - reach) / out.stride.back() + 1);
    }
    out.reverse_instruction = kind == 1 ? !OneIn(4) : OneIn(5);
    std::tie(out.left, out.left_roles) = Placed(left, kind == 2);
    std::tie(out.right, out.right_roles) = Placed(right, OneIn(2));
    std::tie(out.result, out.result_roles) = Placed(result, kind == 2);
    return out;
  }

 private:
  // Sizes by role, put at dimensions of any order; and where each role went. The first two keep their order, or swap.
  std::pair<std::vector<int64_t>, std::vector<int64_t>> Placed(const std::vector<int64_t>& sizes, bool swap) {
    std::vector<int64_t> roles(sizes.size());
    for (size_t i = 0; i < roles.size(); ++i) roles[i] = static_cast<int64_t>(i);
    if (OneIn(3)) std::shuffle(roles.begin(), roles.end(), random_);
    if ((roles[0] > roles[1]) != swap) std::swap(roles[0], roles[1]);
    std::vector<int64_t> dims(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) dims[static_cast<size_t>(roles[i])] = sizes[i];
    return {dims, roles};
  }

  std::mt19937 random_;
};

inline size_t RowMajor(const std::vector<int64_t>& dims, const std::vector<int64_t>& roles,
                       const std::vector<int64_t>& at) {
  std::vector<int64_t> index(dims.size());
  for (size_t i = 0; i < roles.size(); ++i) index[static_cast<size_t>(roles[i])] = at[i];
  int64_t offset = 0;
  for (size_t i = 0; i < dims.size(); ++i) offset = offset * dims[i] + index[i];
  return static_cast<size_t>(offset);
}

inline int64_t SizeOf(const std::vector<int64_t>& dims, const std::vector<int64_t>& roles, size_t role) {
  return dims[static_cast<size_t>(roles[role])];
}

inline std::vector<float> HloByDefinition(const HloConvolution& c, const std::vector<float>& left,
                                          const std::vector<float>& right) {
  std::vector<float> result(static_cast<size_t>(kernels::StridedArray{c.result, {}}.ElementCount()));
  const int64_t in = SizeOf(c.right, c.right_roles, 1), made = SizeOf(c.right, c.right_roles, 0);
  std::vector<int64_t> loop{SizeOf(c.result, c.result_roles, 0), made};
  for (size_t i = 0; i < c.spatial(); ++i) loop.push_back(SizeOf(c.result, c.result_roles, i + 2));
  loop.push_back(in);
  for (size_t i = 0; i < c.spatial(); ++i) loop.push_back(SizeOf(c.right, c.right_roles, i + 2));
  std::vector<int64_t> at(loop.size()), from(c.spatial() + 2), window(c.spatial() + 2), to(c.spatial() + 2);
  do {
    const int64_t feature_group = at[1] / (made / c.feature_groups), batch_group = at[1] / (made / c.batch_groups);
    from[0] = at[0] + batch_group * loop[0];
    from[1] = at[2 + c.spatial()] + feature_group * in;
    to[0] = at[0], to[1] = window[0] = at[1];
    window[1] = at[2 + c.spatial()];
    bool inside = true;
    for (size_t i = 0; i < c.spatial(); ++i) {
      to[i + 2] = at[i + 2];
      const int64_t k = at[c.spatial() + 3 + i], size = SizeOf(c.right, c.right_roles, i + 2);
      window[i + 2] = (c.turned[i] != 0) != c.reverse_instruction ? size - 1 - k : k;
      const int64_t x = at[i + 2] * c.stride[i] + k * c.dilation[i] - c.low[i];
      inside = inside && x >= 0 && x % c.base_dilation[i] == 0 &&
               x / c.base_dilation[i] < SizeOf(c.left, c.left_roles, i + 2);
      from[i + 2] = x / c.base_dilation[i];
    }
    if (!inside) continue;
    result[RowMajor(c.result, c.result_roles, to)] +=
        left[RowMajor(c.left, c.left_roles, from)] * right[RowMajor(c.right, c.right_roles, window)];
  } while (kernels::NextIndex(loop, &at));
  return result;
}

inline std::string ConvolutionFields(const HloConvolution& c) {
  ProtoWriter out, window, numbers;
  for (size_t i = 0; i < c.spatial(); ++i) {
    ProtoWriter dimension;
    dimension.Int64(1, SizeOf(c.right, c.right_roles, i + 2));
    dimension.Int64(2, c.stride[i]);
    dimension.Int64(3, c.low[i]);
    dimension.Int64(4, c.high[i]);
    dimension.Int64(5, c.dilation[i]);
    dimension.Int64(6, c.base_dilation[i]);
    dimension.Int64(7, c.turned[i]);
    window.Bytes(1, dimension.bytes());
  }
  numbers.Int64(7, c.left_roles[0]);
  numbers.Int64(8, c.left_roles[1]);
  numbers.Int64(3, c.right_roles[1]);
  numbers.Int64(4, c.right_roles[0]);
  numbers.Int64(9, c.result_roles[0]);
  numbers.Int64(10, c.result_roles[1]);
  for (size_t i = 2; i < c.left_roles.size(); ++i) {
    numbers.Int64(11, c.left_roles[i]);
    numbers.Int64(6, c.right_roles[i]);
    numbers.Int64(12, c.result_roles[i]);
  }
  out.Bytes(15, window.bytes());
  out.Bytes(16, numbers.bytes());
  out.Int64(50, c.feature_groups);
  out.Int64(58, c.batch_groups);
  return std::move(out).Take();
}

inline std::vector<int64_t> SpatialOfRight(const HloConvolution& c) {
  return {c.right_roles.begin() + 2, c.right_roles.end()};
}

inline std::string ModuleOf(const HloConvolution& c) {
  HloBuilder builder;
  const int64_t left = builder.Parameter(F32(c.left));
  int64_t right = builder.Parameter(F32(c.right));
  if (c.reverse_instruction) {
    ProtoWriter fields;
    for (const int64_t dim : SpatialOfRight(c)) fields.Int64(14, dim);
    right = builder.Add("reverse", F32(c.right), {right}, fields.bytes());
  }
  builder.Add("convolution", F32(c.result), {left, right}, ConvolutionFields(c));
  return builder.Build("one_convolution");
}

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_CONVOLUTION_TEST_SUPPORT_H_
