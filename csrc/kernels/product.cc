#include "csrc/kernels/product.h"

#include <string>

namespace pathways::kernels {

double Product::Operations() const {
  return 2.0 * static_cast<double>(result.ElementCount()) * static_cast<double>(inner());
}

std::vector<int64_t> Product::Encode() const {
  std::vector<int64_t> out{kTag, static_cast<int64_t>(dtype)};
  for (const auto* part : {&left.dims, &left.strides, &right.dims, &right.strides, &result.dims, &result.strides}) {
    out.insert(out.end(), part->begin(), part->end());
  }
  return out;
}

Result<Product> Product::Decode(std::span<const int64_t> numbers) {
  const Status refused = InvalidArgument("expected the numbers of a product of matrices, got " +
                                         std::to_string(numbers.size()) + " that are not consistent");
  NumberReader reader(numbers);
  const std::vector<int64_t> head = reader.Take(2);
  Product out;
  out.dtype = static_cast<DType>(head[1]);
  if (head[0] != kTag ||
      (head[1] != static_cast<int64_t>(DType::kF32) && head[1] != static_cast<int64_t>(DType::kBF16))) {
    return refused;
  }
  for (StridedArray* array : {&out.left, &out.right, &out.result}) *array = reader.TakeArray(3);
  if (!reader.done() || !out.left.StaysWithin() || !out.right.StaysWithin() || !out.result.StaysWithin()) {
    return refused;
  }
  const bool fits = out.left.dims[0] == out.batch() && out.right.dims[0] == out.batch() &&
                    out.left.dims[1] == out.rows() && out.right.dims[1] == out.inner() &&
                    out.right.dims[2] == out.columns();
  return fits ? Result<Product>(std::move(out)) : refused;
}

}  // namespace pathways::kernels
