#include "csrc/collective/stream.h"

#include <cstring>

namespace pathways::collective {
namespace {

// Bytes that are reduced at once: the running result of many terms stays in the first-level cache.
constexpr uint64_t kBlockBytes = 16 << 10;

std::byte* TermAt(const Term& term, const Stream& shape, size_t piece, uint64_t offset, uint64_t begin) {
  if (term.stream != nullptr) return term.stream->pieces()[piece].At(offset);
  return const_cast<std::byte*>(term.dense) + (shape.pieces()[piece].start + offset - begin);
}

}  // namespace

void Stream::Add(const std::byte* data, uint64_t rows, uint64_t row_bytes, uint64_t stride, DType dtype) {
  if (rows * row_bytes == 0) return;
  Piece piece{const_cast<std::byte*>(data), rows, row_bytes, stride, AlignUp(size_), dtype};
  size_ = piece.start + piece.bytes();
  pieces_.push_back(piece);
}

void Stream::Read(uint64_t begin, uint64_t size, std::byte* to) const {
  ForEach(begin, size, false, [&](size_t index, uint64_t offset, uint64_t count, uint64_t at) {
    const Piece& piece = pieces_[index];
    if (piece.dense()) {
      std::memcpy(to + at, piece.data + offset, count);
      return;
    }
    while (count > 0) {
      const uint64_t column = offset % piece.row_bytes;
      const uint64_t run = std::min(count, piece.row_bytes - column);
      std::memcpy(to + at, piece.data + offset / piece.row_bytes * piece.stride + column, run);
      offset += run;
      at += run;
      count -= run;
    }
  });
}

void Stream::Write(uint64_t begin, uint64_t size, const std::byte* from) const {
  ForEach(begin, size, false, [&](size_t index, uint64_t offset, uint64_t count, uint64_t at) {
    const Piece& piece = pieces_[index];
    if (piece.dense()) {
      std::memcpy(piece.data + offset, from + at, count);
      return;
    }
    while (count > 0) {
      const uint64_t column = offset % piece.row_bytes;
      const uint64_t run = std::min(count, piece.row_bytes - column);
      std::memcpy(piece.data + offset / piece.row_bytes * piece.stride + column, from + at, run);
      offset += run;
      at += run;
      count -= run;
    }
  });
}

void CopyStream(const Stream& from, const Stream& to) {
  for (size_t i = 0; i < from.pieces().size(); ++i) {
    const Piece& source = from.pieces()[i];
    const Piece& target = to.pieces()[i];
    if (source.data == target.data) continue;
    if (source.dense() && target.dense()) {
      std::memcpy(target.data, source.data, source.bytes());
      continue;
    }
    for (uint64_t row = 0; row < source.rows; ++row) {
      std::memcpy(target.data + row * target.stride, source.data + row * source.stride, source.row_bytes);
    }
  }
}

void ReduceTerms(const std::vector<Term>& terms, const Stream& shape, hlo::Reduction reduction, uint64_t begin,
                 uint64_t size, Term result, size_t first_own, size_t own) {
  alignas(64) std::byte running[kBlockBytes];
  alignas(64) std::byte joined[kBlockBytes];
  const auto reduce_block = [&](size_t index, uint64_t offset, uint64_t count) {
    const Piece& piece = shape.pieces()[index];
    std::byte* const to = TermAt(result, shape, index, offset, begin);
    const std::byte* left = TermAt(terms[0], shape, index, offset, begin);
    if (terms.size() == 1) {
      if (to != left) std::memcpy(to, left, count);
      return;
    }
    // Types without arithmetic are refused before any exchange begins.
    const ReduceFunction reduce = *FindReduction(piece.dtype, reduction);
    const auto elements = static_cast<size_t>(count / static_cast<uint64_t>(DTypeBytes(piece.dtype)));
    const std::byte* ours = TermAt(terms[first_own], shape, index, offset, begin);
    for (size_t i = 1; i < own; ++i) {
      std::byte* const step = own == terms.size() && i + 1 == own ? to : joined;
      reduce(step, ours, TermAt(terms[first_own + i], shape, index, offset, begin), elements);
      ours = step;
    }
    if (first_own == 0) left = ours;
    for (size_t i = first_own == 0 ? own : 1; i < terms.size(); i += i == first_own ? own : 1) {
      std::byte* const step = i < first_own ? running : to;
      reduce(step, left, i == first_own ? ours : TermAt(terms[i], shape, index, offset, begin), elements);
      left = step;
    }
  };
  bool by_row = result.stream != nullptr && std::any_of(result.stream->pieces().begin(), result.stream->pieces().end(),
                                                        [](const Piece& piece) { return !piece.dense(); });
  for (const Term& term : terms) {
    by_row |= term.stream != nullptr && std::any_of(term.stream->pieces().begin(), term.stream->pieces().end(),
                                                    [](const Piece& piece) { return !piece.dense(); });
  }
  shape.ForEach(begin, size, by_row, [&](size_t index, uint64_t offset, uint64_t count, uint64_t) {
    for (uint64_t done = 0; done < count; done += kBlockBytes) {
      reduce_block(index, offset + done, std::min(kBlockBytes, count - done));
    }
  });
}

}  // namespace pathways::collective
