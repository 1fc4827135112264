#include "csrc/collective/reduce.h"

#include <immintrin.h>

#include <bit>
#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

// The loops below are worth vectorising, whatever the rest is compiled with.
#pragma GCC optimize("O3")

namespace pathways::collective {
namespace {

using hlo::Reduction;

// Element types that are computed in f32.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline float Widen(Bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

inline Bf16 NarrowBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;  // rounding could carry a NaN into infinity
  return {static_cast<uint16_t>(x != x ? nan : rounded)};
}

inline float Widen(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t rest = x.bits & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | ((rest & 0x3ff) << 13));
  // Moves the exponent from bias 15 to bias 127; the multiplication normalises subnormal numbers, too.
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline F16 NarrowF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00 | ((rest >> 13) & 0x3ff))};
  if (rest >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // 65520 and more
  if (rest < 0x38800000) {  // subnormal: let the addition round at the right bit
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000))};
  }
  const uint32_t rounded = rest - 0x38000000 + 0xfff + ((rest >> 13) & 1);
  return {static_cast<uint16_t>(sign | (rounded >> 13))};
}

template <typename T>
concept Narrow = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;
template <typename T>
concept Complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <Reduction R, typename T>
inline T Apply(T a, T b) {
  if constexpr (Narrow<T>) {
    const float result = Apply<R>(Widen(a), Widen(b));
    if constexpr (std::is_same_v<T, Bf16>) {
      return NarrowBf16(result);
    } else {
      return NarrowF16(result);
    }
  } else if constexpr (R == Reduction::kSum) {
    return static_cast<T>(a + b);
  } else if constexpr (R == Reduction::kProduct) {
    if constexpr (Complex<T>) {
      return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    } else if constexpr (sizeof(T) == 2) {
      return static_cast<T>(uint32_t{a} * uint32_t{b});  // two u16 would be multiplied as int, and overflow
    } else {
      return static_cast<T>(a * b);
    }
  } else if constexpr (R == Reduction::kMin) {
    return (a < b || a != a) ? a : b;  // a NaN in b is taken because no comparison with it holds
  } else if constexpr (R == Reduction::kMax) {
    return (a > b || a != a) ? a : b;
  } else if constexpr (R == Reduction::kAnd) {
    return static_cast<T>(a & b);
  } else if constexpr (R == Reduction::kOr) {
    return static_cast<T>(a | b);
  } else {
    return static_cast<T>(a ^ b);
  }
}

template <Reduction R, typename T>
void Loop(std::byte* to_bytes, const std::byte* a_bytes, const std::byte* b_bytes, size_t count) {
  T* to = reinterpret_cast<T*>(to_bytes);
  const T* a = reinterpret_cast<const T*>(a_bytes);
  const T* b = reinterpret_cast<const T*>(b_bytes);
  // `to` is one of the others or apart from both, so no element depends on an earlier one.
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) to[i] = Apply<R, T>(a[i], b[i]);
}

// As Loop for f16, eight at a time with the processor's conversions.
template <Reduction R>
__attribute__((target("avx,f16c"))) void LoopF16c(std::byte* to_bytes, const std::byte* a_bytes,
                                                  const std::byte* b_bytes, size_t count) {
  auto* to = reinterpret_cast<uint16_t*>(to_bytes);
  const auto* a = reinterpret_cast<const uint16_t*>(a_bytes);
  const auto* b = reinterpret_cast<const uint16_t*>(b_bytes);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
    const __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    __m256 result;
    if constexpr (R == Reduction::kSum) {
      result = _mm256_add_ps(x, y);
    } else if constexpr (R == Reduction::kProduct) {
      result = _mm256_mul_ps(x, y);
    } else {
      const __m256 x_is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
      result = R == Reduction::kMin ? _mm256_min_ps(x, y) : _mm256_max_ps(x, y);  // gives y when either is NaN
      result = _mm256_blendv_ps(result, x, x_is_nan);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT));
  }
  Loop<R, F16>(to_bytes + 2 * i, a_bytes + 2 * i, b_bytes + 2 * i, count - i);
}

template <typename T>
ReduceFunction OfInteger(Reduction reduction) {
  // Signed sums wrap around: they are computed on the unsigned type of the same size.
  using U = std::make_unsigned_t<T>;
  switch (reduction) {
    case Reduction::kSum:
      return &Loop<Reduction::kSum, U>;
    case Reduction::kProduct:
      return &Loop<Reduction::kProduct, U>;
    case Reduction::kMin:
      return &Loop<Reduction::kMin, T>;
    case Reduction::kMax:
      return &Loop<Reduction::kMax, T>;
    case Reduction::kAnd:
      return &Loop<Reduction::kAnd, U>;
    case Reduction::kOr:
      return &Loop<Reduction::kOr, U>;
    case Reduction::kXor:
      return &Loop<Reduction::kXor, U>;
  }
  return nullptr;
}

ReduceFunction OfPred(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMax:
    case Reduction::kOr:
      return &Loop<Reduction::kOr, uint8_t>;
    case Reduction::kProduct:
    case Reduction::kMin:
    case Reduction::kAnd:
      return &Loop<Reduction::kAnd, uint8_t>;
    case Reduction::kXor:
      return &Loop<Reduction::kXor, uint8_t>;
  }
  return nullptr;
}

template <typename T>
ReduceFunction OfFloat(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return &Loop<Reduction::kSum, T>;
    case Reduction::kProduct:
      return &Loop<Reduction::kProduct, T>;
    case Reduction::kMin:
      return &Loop<Reduction::kMin, T>;
    case Reduction::kMax:
      return &Loop<Reduction::kMax, T>;
    default:
      return nullptr;
  }
}

ReduceFunction OfF16(Reduction reduction) {
  static const bool fast = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  if (!fast) return OfFloat<F16>(reduction);
  switch (reduction) {
    case Reduction::kSum:
      return &LoopF16c<Reduction::kSum>;
    case Reduction::kProduct:
      return &LoopF16c<Reduction::kProduct>;
    case Reduction::kMin:
      return &LoopF16c<Reduction::kMin>;
    case Reduction::kMax:
      return &LoopF16c<Reduction::kMax>;
    default:
      return nullptr;
  }
}

template <typename T>
ReduceFunction OfComplex(Reduction reduction) {
  if (reduction == Reduction::kSum) return &Loop<Reduction::kSum, T>;
  if (reduction == Reduction::kProduct) return &Loop<Reduction::kProduct, T>;
  return nullptr;
}

ReduceFunction Find(DType dtype, Reduction reduction) {
  switch (dtype) {
    case DType::kPred:
      return OfPred(reduction);
    case DType::kS8:
      return OfInteger<int8_t>(reduction);
    case DType::kS16:
      return OfInteger<int16_t>(reduction);
    case DType::kS32:
      return OfInteger<int32_t>(reduction);
    case DType::kS64:
      return OfInteger<int64_t>(reduction);
    case DType::kU8:
      return OfInteger<uint8_t>(reduction);
    case DType::kU16:
      return OfInteger<uint16_t>(reduction);
    case DType::kU32:
      return OfInteger<uint32_t>(reduction);
    case DType::kU64:
      return OfInteger<uint64_t>(reduction);
    case DType::kF16:
      return OfF16(reduction);
    case DType::kBF16:
      return OfFloat<Bf16>(reduction);
    case DType::kF32:
      return OfFloat<float>(reduction);
    case DType::kF64:
      return OfFloat<double>(reduction);
    case DType::kC64:
      return OfComplex<std::complex<float>>(reduction);
    case DType::kC128:
      return OfComplex<std::complex<double>>(reduction);
    default:
      return nullptr;
  }
}

}  // namespace

std::string_view ReductionName(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kProduct:
      return "product";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kAnd:
      return "and";
    case Reduction::kOr:
      return "or";
    case Reduction::kXor:
      return "xor";
  }
  return "unknown";
}

Result<ReduceFunction> FindReduction(DType dtype, Reduction reduction) {
  if (ReduceFunction function = Find(dtype, reduction)) return function;
  return Unimplemented("collectives over hosts have no " + std::string(ReductionName(reduction)) + " of " +
                       std::string(DTypeName(dtype)) + "; convert to a type that has, for example f32");
}

}  // namespace pathways::collective
