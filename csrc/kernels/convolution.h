// Convolution: what one convolution computes, as a kernel library sees it. Forward, or one of the two gradients.
//
// With groups g, all per group: source (batch, g * in, spatial), weights (g, out, in, spatial), target (batch, g * out,
// spatial). A forward convolution makes the target of the other two, an input gradient the source, a weight gradient
// the weights.
//
// Threads: plain values.
#ifndef PTPATHWAYS_KERNELS_CONVOLUTION_H_
#define PTPATHWAYS_KERNELS_CONVOLUTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/kernels/strided_array.h"

namespace pathways::kernels {

struct Convolution {
  enum class Kind : int64_t { kForward = 0, kInputGradient = 1, kWeightGradient = 2 };

  Kind kind = Kind::kForward;
  DType dtype = DType::kF32;
  StridedArray source, weights, target;
  // One for each spatial dimension. The target has floor((source + low + high - (kernel - 1) * dilation - 1) / stride)
  // + 1 elements; `high` may be negative, down to 1 - stride, where the last elements of the source count for nothing.
  std::vector<int64_t> stride, dilation, low, high;

  int64_t groups() const { return weights.dims[0]; }
  size_t spatial() const { return stride.size(); }
  const StridedArray& first() const { return kind == Kind::kInputGradient ? target : source; }
  const StridedArray& second() const { return kind == Kind::kWeightGradient ? target : weights; }
  const StridedArray& result() const {
    return kind == Kind::kForward ? target : kind == Kind::kInputGradient ? source : weights;
  }
  double Operations() const;  // multiplications and additions

  // Numbers that stand for it, and back. INVALID_ARGUMENT for what does not.
  std::vector<int64_t> Encode() const;
  static Result<Convolution> Decode(std::span<const int64_t> numbers);

  friend bool operator==(const Convolution&, const Convolution&) = default;
};

}  // namespace pathways::kernels

#endif  // PTPATHWAYS_KERNELS_CONVOLUTION_H_
