#include "csrc/base/strided.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

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

// Calls visit(offset in the tensor, bytes) for the rows, or parts of rows, that are bytes [offset, offset + count) of
// the dense box.
template <typename Visit>
void VisitRange(const TensorType& tensor, const BoxView& box, uint64_t offset, uint64_t count, Visit visit) {
  if (count == 0 || BoxBytes(tensor, box) == 0) return;
  const Rows rows(tensor, box);
  const uint64_t row_bytes = static_cast<uint64_t>(rows.row_bytes());
  while (count > 0) {
    const uint64_t within = offset % row_bytes;
    const uint64_t part = std::min(count, row_bytes - within);
    visit(rows.Offset(static_cast<int64_t>(offset / row_bytes)) + static_cast<int64_t>(within), part);
    offset += part;
    count -= part;
  }
}

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

void GatherBox(const TensorType& tensor, const BoxView& box, const void* from, uint64_t offset, uint64_t count,
               void* to) {
  char* out = static_cast<char*>(to);
  VisitRange(tensor, box, offset, count, [&](int64_t in_tensor, uint64_t bytes) {
    std::memcpy(out, static_cast<const char*>(from) + in_tensor, bytes);
    out += bytes;
  });
}

void ScatterBox(const TensorType& tensor, const BoxView& box, const void* from, uint64_t offset, uint64_t count,
                void* to) {
  const char* in = static_cast<const char*>(from);
  VisitRange(tensor, box, offset, count, [&](int64_t in_tensor, uint64_t bytes) {
    std::memcpy(static_cast<char*>(to) + in_tensor, in, bytes);
    in += bytes;
  });
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

ByteSource::ByteSource(const void* tensor, TensorType type, BoxView box)
    : from_(tensor), size_(static_cast<uint64_t>(BoxBytes(type, box))), one_run_(false) {
  if (const std::optional<int64_t> offset = RunOffset(type, box)) {
    from_ = static_cast<const char*>(tensor) + *offset;
    one_run_ = true;
    return;
  }
  type_ = std::move(type);
  box_ = std::move(box);
}

void ByteSource::Copy(uint64_t offset, uint64_t count, void* to) const {
  if (!one_run_) return GatherBox(type_, box_, from_, offset, count, to);
  if (count > 0) std::memcpy(to, static_cast<const char*>(from_) + offset, count);
}

}  // namespace pathways
