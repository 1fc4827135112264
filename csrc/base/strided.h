// Boxes of dense row-major tensors: taking one out as contiguous bytes, and putting contiguous bytes into one.
//
// Ownership: borrows all memory. Threads: pure functions, and a class without state that changes.
#ifndef PTPATHWAYS_BASE_STRIDED_H_
#define PTPATHWAYS_BASE_STRIDED_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways {

// The elements [start[d], start[d] + size[d]) of every dimension d of a tensor.
struct BoxView {
  std::vector<int64_t> start;
  std::vector<int64_t> size;
};

// INVALID_ARGUMENT unless the box has the tensor's number of dimensions and lies inside it.
Status CheckBox(const TensorType& tensor, const BoxView& box);
// Bytes of the box alone.
int64_t BoxBytes(const TensorType& tensor, const BoxView& box);

// Where the box begins in the tensor, in bytes, if it is one run of bytes there.
std::optional<int64_t> RunOffset(const TensorType& tensor, const BoxView& box);

// Copies bytes [offset, offset + count) of the dense box of the tensor at `from` to `to`. The box must have passed
// CheckBox.
void GatherBox(const TensorType& tensor, const BoxView& box, const void* from, uint64_t offset, uint64_t count,
               void* to);
// Copies `count` bytes, which are bytes [offset, offset + count) of the dense box, to their places in the tensor at
// `to`.
void ScatterBox(const TensorType& tensor, const BoxView& box, const void* from, uint64_t offset, uint64_t count,
                void* to);

// The box as rows, runs of bytes that are contiguous in the tensor: calls `visit` with the offset of each in the
// tensor, in order, and the bytes of a row, which are the same for all. Stops at the first error and returns it.
Status VisitRows(const TensorType& tensor, const BoxView& box,
                 const std::function<Status(int64_t offset, int64_t bytes)>& visit);

// Bytes that lie in memory in one run, or as a box of a tensor, and are read as one sequence, piece by piece.
class ByteSource {
 public:
  ByteSource(const void* bytes, uint64_t size) : from_(bytes), size_(size), one_run_(true) {}
  // The box must have passed CheckBox.
  ByteSource(const void* tensor, TensorType type, BoxView box);

  uint64_t size() const { return size_; }
  // Where all of them are, one after the other; null when they are in several runs.
  const std::byte* run() const { return one_run_ ? static_cast<const std::byte*>(from_) : nullptr; }
  // Copies bytes [offset, offset + count) to `to`.
  void Copy(uint64_t offset, uint64_t count, void* to) const;

 private:
  const void* from_;
  uint64_t size_;
  bool one_run_;
  // In several runs:
  TensorType type_;
  BoxView box_;
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_STRIDED_H_
