// StridedArray: an array of some memory, as a kernel library sees it; and what descriptions that come as numbers need.
//
// Threads: plain values.
#ifndef PTPATHWAYS_KERNELS_STRIDED_ARRAY_H_
#define PTPATHWAYS_KERNELS_STRIDED_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pathways::kernels {

// `strides` are in elements, so any order of dimensions in memory can be described.
struct StridedArray {
  // No description has more elements than this, or reaches further.
  static constexpr int64_t kMaxElements = int64_t{1} << 46;

  std::vector<int64_t> dims;
  std::vector<int64_t> strides;

  int64_t ElementCount() const;
  // Whether it has elements, and every index finds one among so many as it has.
  bool StaysWithin() const;
  friend bool operator==(const StridedArray&, const StridedArray&) = default;
};

// Takes numbers from the front of a row of them. Too few give zeros, and `done` says so.
class NumberReader {
 public:
  explicit NumberReader(std::span<const int64_t> numbers) : numbers_(numbers) {}
  std::vector<int64_t> Take(size_t count);
  StridedArray TakeArray(size_t rank);
  bool done() const { return ok_ && numbers_.empty(); }  // all of them were taken, and no more

 private:
  std::span<const int64_t> numbers_;
  bool ok_ = true;
};

}  // namespace pathways::kernels

#endif  // PTPATHWAYS_KERNELS_STRIDED_ARRAY_H_
