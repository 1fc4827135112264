// Product: what a product of matrices computes, or a batch of them, as a kernel library sees it: for each b,
// result[b] (rows, columns) = left[b] (rows, inner) * right[b] (inner, columns).
//
// Threads: plain values.
#ifndef PTPATHWAYS_KERNELS_PRODUCT_H_
#define PTPATHWAYS_KERNELS_PRODUCT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/kernels/strided_array.h"

namespace pathways::kernels {

struct Product {
  static constexpr int64_t kTag = 3;  // the first number of its encoding: no convolution's kind

  DType dtype = DType::kF32;
  StridedArray left, right, result;  // of three dimensions each

  int64_t batch() const { return result.dims[0]; }
  int64_t rows() const { return result.dims[1]; }
  int64_t inner() const { return left.dims[2]; }
  int64_t columns() const { return result.dims[2]; }
  double Operations() const;  // multiplications and additions

  // Numbers that stand for it, and back. INVALID_ARGUMENT for what does not.
  std::vector<int64_t> Encode() const;
  static Result<Product> Decode(std::span<const int64_t> numbers);

  friend bool operator==(const Product&, const Product&) = default;
};

}  // namespace pathways::kernels

#endif  // PTPATHWAYS_KERNELS_PRODUCT_H_
