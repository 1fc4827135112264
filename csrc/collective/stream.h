// Stream: arrays, or blocks of arrays, seen as one run of bytes: what one host sends to another in a collective.
//
// A stream is a list of pieces, each of `rows` runs of `row_bytes` bytes that lie `stride` bytes apart. Pieces begin at
// multiples of 16 in the stream, so that a cut at any multiple of 16 splits no element; the bytes between two pieces
// have no meaning. Streams of one shape (equal rows and row_bytes of every piece) have equal offsets.
//
// Ownership: borrows all memory. Threads: none inside.
#ifndef PTPATHWAYS_COLLECTIVE_STREAM_H_
#define PTPATHWAYS_COLLECTIVE_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/tensor_type.h"
#include "csrc/collective/reduce.h"

namespace pathways::collective {

inline constexpr uint64_t kStreamAlignment = 16;
constexpr uint64_t AlignUp(uint64_t value) { return (value + kStreamAlignment - 1) & ~(kStreamAlignment - 1); }

struct Piece {
  std::byte* data = nullptr;  // only read when the stream is a source
  uint64_t rows = 1;
  uint64_t row_bytes = 0;
  uint64_t stride = 0;
  uint64_t start = 0;  // in the stream
  DType dtype{};

  uint64_t bytes() const { return rows * row_bytes; }
  bool dense() const { return rows == 1 || stride == row_bytes; }
  std::byte* At(uint64_t offset) const {
    return dense() ? data + offset : data + offset / row_bytes * stride + offset % row_bytes;
  }
};

class Stream {
 public:
  void Add(const std::byte* data, uint64_t rows, uint64_t row_bytes, uint64_t stride, DType dtype);
  uint64_t size() const { return size_; }  // the end of the last piece
  const std::vector<Piece>& pieces() const { return pieces_; }

  // visit(index of piece, offset in the piece, bytes, offset from `begin`) for each part of [begin, begin + size) that
  // lies in one piece; within one row if `by_row`.
  template <typename Visit>
  void ForEach(uint64_t begin, uint64_t size, bool by_row, Visit&& visit) const {
    const uint64_t end = begin + size;
    auto at = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                               [](uint64_t offset, const Piece& piece) { return offset < piece.start; });
    if (at != pieces_.begin()) --at;
    for (; at != pieces_.end() && at->start < end; ++at) {
      const auto index = static_cast<size_t>(at - pieces_.begin());
      uint64_t offset = std::max(begin, at->start) - at->start;
      const uint64_t stop = std::min(end - at->start, at->bytes());
      while (offset < stop) {
        const uint64_t left = by_row ? at->row_bytes - offset % at->row_bytes : stop - offset;
        const uint64_t count = std::min(left, stop - offset);
        visit(index, offset, count, at->start + offset - begin);
        offset += count;
      }
    }
  }

  // Bytes [begin, begin + size) of the stream to or from dense memory.
  void Read(uint64_t begin, uint64_t size, std::byte* to) const;
  void Write(uint64_t begin, uint64_t size, const std::byte* from) const;

 private:
  std::vector<Piece> pieces_;
  uint64_t size_ = 0;
};

// Copies all of `from` to `to`, a stream of the same shape; pieces that are the same memory are left alone.
void CopyStream(const Stream& from, const Stream& to);

// One term of a reduction: either a stream or dense memory that holds [begin, begin + size) of one of the same shape.
struct Term {
  const Stream* stream = nullptr;
  const std::byte* dense = nullptr;
};

// Reduces terms[0] op terms[1] op ..., in this order, over [begin, begin + size), to a stream or to dense memory. The
// `own` terms from `first_own` on, at least one, are reduced among themselves first: a host sends others what is
// reduced of its own, so only then all hosts get the same bits. `result` may be the same memory as the term
// `first_own`; it is not written before that term has been read. A single term is copied.
void ReduceTerms(const std::vector<Term>& terms, const Stream& shape, hlo::Reduction reduction, uint64_t begin,
                 uint64_t size, Term result, size_t first_own, size_t own);

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_STREAM_H_
