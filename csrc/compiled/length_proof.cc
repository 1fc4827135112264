#include "csrc/compiled/length_proof.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "csrc/base/strided.h"

namespace pathways::compiled {
namespace {

// Which formats have the parts of an element, if they are numbers with a point.
struct Format {
  int bytes = 0;  // 0: integers
  int parts = 1;
  // By how much results of other orders of summation may differ, relative to themselves and to the largest.
  double itself = 0, largest = 0;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {8, 1, 1e-6, 1e-7};
    case DType::kF32:
      return {4, 1, 1e-4, 1e-5};
    case DType::kC64:
      return {4, 2, 1e-4, 1e-5};
    case DType::kC128:
      return {8, 2, 1e-6, 1e-7};
    case DType::kF16:
      return {2, 1, 1e-2, 5e-3};
    case DType::kBF16:
      return {2, 1, 4e-2, 2e-2};
    default:
      return {};
  }
}

double HalfToDouble(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

uint16_t DoubleToHalf(double value) {  // of -1 to 1, cut off
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>((bits >> 52) & 2047) - 1023 + 15;
  const auto sign = static_cast<uint16_t>((bits >> 63) << 15);
  if (exponent <= 0) return sign;
  return static_cast<uint16_t>(sign | (exponent << 10) | ((bits >> 42) & 1023));
}

std::vector<double> Numbers(DType dtype, std::string_view bytes) {
  const Format format = FormatOf(dtype);
  std::vector<double> out(bytes.size() / static_cast<size_t>(format.bytes));
  for (size_t i = 0; i < out.size(); ++i) {
    const char* const at = bytes.data() + i * static_cast<size_t>(format.bytes);
    if (format.bytes == 8) {
      std::memcpy(&out[i], at, 8);
    } else if (format.bytes == 4) {
      float value;
      std::memcpy(&value, at, 4);
      out[i] = value;
    } else {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      out[i] = dtype == DType::kBF16 ? std::bit_cast<float>(uint32_t{bits} << 16) : HalfToDouble(bits);
    }
  }
  return out;
}

void Append(DType dtype, double value, std::string& out) {
  const Format format = FormatOf(dtype);
  char bytes[8];
  if (format.bytes == 8) {
    std::memcpy(bytes, &value, 8);
  } else if (format.bytes == 4) {
    const auto single = static_cast<float>(value);
    std::memcpy(bytes, &single, 4);
  } else {
    const uint16_t bits = dtype == DType::kBF16
                              ? static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16)
                              : DoubleToHalf(value);
    std::memcpy(bytes, &bits, 2);
  }
  out.append(bytes, static_cast<size_t>(format.bytes));
}

BoxView Beginning(const TensorType& type) { return {std::vector<int64_t>(type.dims.size(), 0), type.dims}; }

}  // namespace

std::string LengthProof::Contents(const TensorType& type) {
  std::string out;
  const auto count = static_cast<size_t>(type.ElementCount());
  const Format format = FormatOf(type.dtype);
  if (format.bytes > 0) {
    for (size_t i = 0; i < count * static_cast<size_t>(format.parts); ++i) {
      Append(type.dtype, static_cast<double>(random_()) / 2147483648.0 - 1.0, out);
    }
    return out;
  }
  const auto bytes = static_cast<size_t>(DTypeBytes(type.dtype));
  out.resize(count * bytes, '\0');
  for (size_t i = 0; i < count; ++i) out[i * bytes] = static_cast<char>(random_() & 1);
  return out;
}

std::string LengthProof::WithGarbage(const TensorType& type, std::string_view contents, const TensorType& larger) {
  // NaNs in every format with a point; of integers numbers that are no index. A truth value has two.
  const bool is_number = FormatOf(type.dtype).bytes > 0;
  std::string out(static_cast<size_t>(larger.ByteSize()), is_number ? '\xff' : type.dtype == DType::kPred ? '\1' : 'y');
  ScatterBox(larger, Beginning(type), contents.data(), 0, contents.size(), out.data());
  return out;
}

bool LengthProof::Agree(const TensorType& right_type, std::string_view right, const TensorType& got_type,
                        std::string_view got) {
  std::string begin(right.size(), '\0');
  if (right_type.dtype != got_type.dtype || !CheckBox(got_type, Beginning(right_type)).ok()) return false;
  GatherBox(got_type, Beginning(right_type), got.data(), 0, begin.size(), begin.data());
  const Format format = FormatOf(right_type.dtype);
  if (format.bytes == 0) return begin == right;
  const std::vector<double> expected = Numbers(right_type.dtype, right), found = Numbers(right_type.dtype, begin);
  double largest = 0;
  for (const double value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == found[i] || (std::isnan(expected[i]) && std::isnan(found[i]))) continue;
    // Not `>`, which is false for a NaN.
    const double bound = format.itself * std::abs(expected[i]) + format.largest * largest;
    if (!(std::abs(expected[i] - found[i]) <= bound)) return false;
  }
  return true;
}

}  // namespace pathways::compiled
