#include "csrc/kernels/convolution.h"

#include <string>

namespace pathways::kernels {
namespace {

constexpr size_t kMaxSpatial = 3;
constexpr int64_t kMaxElements = StridedArray::kMaxElements;

}  // namespace

double Convolution::Operations() const {
  double count = 2.0 * static_cast<double>(weights.ElementCount()) * static_cast<double>(target.dims[0]);
  for (size_t i = 2; i < target.dims.size(); ++i) count *= static_cast<double>(target.dims[i]);
  return count;
}

std::vector<int64_t> Convolution::Encode() const {
  std::vector<int64_t> out{static_cast<int64_t>(kind), static_cast<int64_t>(dtype), static_cast<int64_t>(spatial())};
  for (const auto* part : {&source.dims, &source.strides, &weights.dims, &weights.strides, &target.dims,
                           &target.strides, &stride, &dilation, &low, &high}) {
    out.insert(out.end(), part->begin(), part->end());
  }
  return out;
}

Result<Convolution> Convolution::Decode(std::span<const int64_t> numbers) {
  const Status refused = InvalidArgument("expected the numbers of a convolution, got " +
                                         std::to_string(numbers.size()) + " that are not consistent");
  if (numbers.size() < 3 || numbers[0] < 0 || numbers[0] > 2) return refused;
  Convolution out;
  out.kind = static_cast<Kind>(numbers[0]);
  out.dtype = static_cast<DType>(numbers[1]);
  if ((out.dtype != DType::kF32 && out.dtype != DType::kBF16) || numbers[2] < 1 ||
      numbers[2] > static_cast<int64_t>(kMaxSpatial)) {
    return refused;
  }
  const auto spatial = static_cast<size_t>(numbers[2]);
  NumberReader rest(numbers.subspan(3));
  out.source = rest.TakeArray(spatial + 2);
  out.weights = rest.TakeArray(spatial + 3);
  out.target = rest.TakeArray(spatial + 2);
  for (auto* part : {&out.stride, &out.dilation, &out.low, &out.high}) *part = rest.Take(spatial);
  if (!rest.done() || !out.source.StaysWithin() || !out.weights.StaysWithin() || !out.target.StaysWithin())
    return refused;
  const std::vector<int64_t>& weights = out.weights.dims;
  if (out.source.dims[0] != out.target.dims[0] || out.source.dims[1] != weights[0] * weights[2] ||
      out.target.dims[1] != weights[0] * weights[1]) {
    return refused;
  }
  for (size_t i = 0; i < spatial; ++i) {
    if (out.stride[i] < 1 || out.dilation[i] < 1 || out.low[i] < 0 || out.low[i] > kMaxElements ||
        out.high[i] <= -out.stride[i] || out.high[i] > kMaxElements) {
      return refused;
    }
    int64_t reach = 0;
    if (__builtin_mul_overflow(weights[i + 3] - 1, out.dilation[i], &reach)) return refused;
    const int64_t room = out.source.dims[i + 2] + out.low[i] + out.high[i] - reach - 1;
    if (room < 0 || room / out.stride[i] + 1 != out.target.dims[i + 2]) return refused;
  }
  return out;
}

}  // namespace pathways::kernels
