#include "csrc/base/strided.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace pathways {
namespace {

// The box as rows: runs of bytes that are contiguous both in the box and in the tensor.
class Rows {
 public:
  Rows(const TensorType& tensor, const BoxView& box) : box_(box) {
    const size_t rank = tensor.dims.size();
    strides_.resize(rank);
    int64_t stride = DTypeBytes(tensor.dtype);
    for (size_t d = rank; d-- > 0;) {
      strides_[d] = stride;
      stride *= tensor.dims[d];
    }
    // Dimensions that the box takes whole, from the last one up, join the row; so does the one before them.
    row_bytes_ = DTypeBytes(tensor.dtype);
    outer_ = rank;
    while (outer_ > 0) {
      --outer_;
      row_bytes_ *= box.size[outer_];
      if (box.size[outer_] != tensor.dims[outer_]) break;
    }
  }

  int64_t row_bytes() const { return row_bytes_; }

  // Where row `number` begins in the tensor, in bytes.
  int64_t Offset(int64_t number) const {
    int64_t offset = 0;
    for (size_t d = box_.size.size(); d-- > 0;) {
      int64_t position = box_.start[d];
      if (d < outer_) {
        position += number % box_.size[d];
        number /= box_.size[d];
      }
      offset += position * strides_[d];
    }
    return offset;
  }

 private:
  const BoxView& box_;
  std::vector<int64_t> strides_;
  int64_t row_bytes_ = 0;
  size_t outer_ = 0;  // dimensions before this one count rows
};

}  // namespace

Status CheckBox(const TensorType& tensor, const BoxView& box) {
  if (box.start.size() != tensor.dims.size() || box.size.size() != tensor.dims.size()) {
    return InvalidArgument("expected a box of " + std::to_string(tensor.dims.size()) + " dimensions in " +
                           tensor.ToString() + ", got " + std::to_string(box.start.size()));
  }
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    if (box.start[d] < 0 || box.size[d] < 0 || box.start[d] > tensor.dims[d] ||
        box.size[d] > tensor.dims[d] - box.start[d]) {
      return InvalidArgument("expected a box inside " + tensor.ToString() + ", got " + std::to_string(box.size[d]) +
                             " elements from " + std::to_string(box.start[d]) + " in dimension " + std::to_string(d));
    }
  }
  return OkStatus();
}

int64_t BoxBytes(const TensorType& tensor, const BoxView& box) {
  int64_t bytes = DTypeBytes(tensor.dtype);
  for (int64_t size : box.size) bytes *= size;
  return bytes;
}

std::optional<int64_t> RunOffset(const TensorType& tensor, const BoxView& box) {
  const Rows rows(tensor, box);
  if (rows.row_bytes() != BoxBytes(tensor, box)) return std::nullopt;
  return rows.Offset(0);
}

void GatherBox(const TensorType& tensor, const BoxView& box, const void* from, void* to) {
  const int64_t total = BoxBytes(tensor, box);
  if (total == 0) return;
  const Rows rows(tensor, box);
  char* out = static_cast<char*>(to);
  for (int64_t row = 0; row * rows.row_bytes() < total; ++row, out += rows.row_bytes()) {
    std::memcpy(out, static_cast<const char*>(from) + rows.Offset(row), static_cast<size_t>(rows.row_bytes()));
  }
}

void ScatterBox(const TensorType& tensor, const BoxView& box, const void* from, uint64_t offset, uint64_t count,
                void* to) {
  if (count == 0 || BoxBytes(tensor, box) == 0) return;
  const Rows rows(tensor, box);
  const uint64_t row_bytes = static_cast<uint64_t>(rows.row_bytes());
  const char* in = static_cast<const char*>(from);
  while (count > 0) {
    const uint64_t within = offset % row_bytes;
    const uint64_t part = std::min(count, row_bytes - within);
    std::memcpy(static_cast<char*>(to) + rows.Offset(static_cast<int64_t>(offset / row_bytes)) + within, in, part);
    in += part;
    offset += part;
    count -= part;
  }
}

Status VisitRows(const TensorType& tensor, const BoxView& box,
                 const std::function<Status(int64_t offset, int64_t bytes)>& visit) {
  const int64_t total = BoxBytes(tensor, box);
  if (total == 0) return OkStatus();
  const Rows rows(tensor, box);
  for (int64_t row = 0; row * rows.row_bytes() < total; ++row) {
    PW_RETURN_IF_ERROR(visit(rows.Offset(row), rows.row_bytes()));
  }
  return OkStatus();
}

}  // namespace pathways
