// A scalar's LiteralProto (openxla/xla, xla_data.proto).
//
// Threads: pure functions.
#ifndef PTPATHWAYS_HLO_LITERAL_H_
#define PTPATHWAYS_HLO_LITERAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "csrc/base/tensor_type.h"

namespace pathways::hlo {

// The bits of the one element, little-endian in the first bytes. Nothing for other element types than booleans,
// integers and real numbers of at least a byte, and for bytes that are no such literal.
std::optional<uint64_t> ScalarOf(std::string_view literal, DType dtype);

// The inverse: encoded. Nothing for element types without one.
std::optional<std::string> LiteralOf(DType dtype, uint64_t bits);

// Of the literal of an array, in its order: integers of which each is as much more than the one before, at least two.
struct Progression {
  int64_t first = 0, step = 0;
};
std::optional<Progression> ProgressionOf(std::string_view literal, DType dtype);  // kS32 or kS64

// Encoded: a whole number as one of kS16, kS32, kS64, in which it fits, or as a real number, which is 0 or 1.
std::string WholeLiteral(DType dtype, int64_t value);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_LITERAL_H_
