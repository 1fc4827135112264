#include "csrc/kernels/strided_array.h"

namespace pathways::kernels {

int64_t StridedArray::ElementCount() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

bool StridedArray::StaysWithin() const {
  int64_t furthest = 0, count = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 1 || dims[i] > kMaxElements || strides[i] < 0 || strides[i] > kMaxElements) return false;
    int64_t reach = 0;
    if (__builtin_mul_overflow(dims[i] - 1, strides[i], &reach) || reach > kMaxElements - furthest) return false;
    furthest += reach;
    if (__builtin_mul_overflow(count, dims[i], &count) || count > kMaxElements) return false;
  }
  return furthest < count;
}

std::vector<int64_t> NumberReader::Take(size_t count) {
  if (count > numbers_.size()) {
    ok_ = false;
    return std::vector<int64_t>(count);
  }
  std::vector<int64_t> out(numbers_.begin(), numbers_.begin() + static_cast<std::ptrdiff_t>(count));
  numbers_ = numbers_.subspan(count);
  return out;
}

StridedArray NumberReader::TakeArray(size_t rank) {
  StridedArray out;
  out.dims = Take(rank);
  out.strides = Take(rank);
  return out;
}

}  // namespace pathways::kernels
