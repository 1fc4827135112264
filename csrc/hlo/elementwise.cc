#include "csrc/hlo/elementwise.h"

#include <algorithm>
#include <array>

namespace pathways::hlo {
namespace {

constexpr std::array<std::string_view, 50> kElementwise = {"abs",
                                                           "add",
                                                           "and",
                                                           "atan2",
                                                           "bitcast-convert",
                                                           "cbrt",
                                                           "ceil",
                                                           "clamp",
                                                           "clz",
                                                           "compare",
                                                           "complex",
                                                           "convert",
                                                           "copy",
                                                           "cosine",
                                                           "count-leading-zeros",
                                                           "divide",
                                                           "erf",
                                                           "exponential",
                                                           "exponential-minus-one",
                                                           "floor",
                                                           "imag",
                                                           "is-finite",
                                                           "log",
                                                           "log-plus-one",
                                                           "logistic",
                                                           "maximum",
                                                           "minimum",
                                                           "multiply",
                                                           "negate",
                                                           "not",
                                                           "or",
                                                           "popcnt",
                                                           "power",
                                                           "real",
                                                           "reduce-precision",
                                                           "remainder",
                                                           "round-nearest-afz",
                                                           "round-nearest-even",
                                                           "rsqrt",
                                                           "select",
                                                           "shift-left",
                                                           "shift-right-arithmetic",
                                                           "shift-right-logical",
                                                           "sign",
                                                           "sine",
                                                           "sqrt",
                                                           "subtract",
                                                           "tan",
                                                           "tanh",
                                                           "xor"};
// Of these, what makes zeros of zeros.
constexpr std::array<std::string_view, 11> kKeepsZeros = {
    "abs", "add", "and", "convert", "copy", "maximum", "minimum", "multiply", "negate", "or", "subtract"};

}  // namespace

bool IsElementwise(std::string_view opcode) {
  return std::find(kElementwise.begin(), kElementwise.end(), opcode) != kElementwise.end();
}

bool KeepsZeros(std::string_view opcode) {
  return std::find(kKeepsZeros.begin(), kKeepsZeros.end(), opcode) != kKeepsZeros.end();
}

}  // namespace pathways::hlo
