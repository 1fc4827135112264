#include "csrc/hlo/literal.h"

#include <cstring>

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

// Of a LiteralProto; 0 for other types.
uint32_t ElementField(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return 2;
    case DType::kU8:
      return 3;
    case DType::kS32:
      return 4;
    case DType::kS64:
      return 5;
    case DType::kU32:
      return 6;
    case DType::kU64:
      return 7;
    case DType::kF32:
      return 8;
    case DType::kF64:
      return 9;
    case DType::kF16:
      return 11;
    case DType::kBF16:
      return 13;
    case DType::kS8:
      return 15;
    default:
      return 0;
  }
}

// Whether the elements stand in the field as they do in memory, without a length each.
bool IsRaw(uint32_t number) { return number == 3 || number == 11 || number == 13 || number == 15; }
bool IsReal(uint32_t number) { return number == 8 || number == 9; }  // fixed size, packed or not

}  // namespace

std::optional<uint64_t> ScalarOf(std::string_view literal, DType dtype) {
  const uint32_t number = ElementField(dtype);
  if (number == 0) return std::nullopt;
  uint64_t bits = 0;
  int count = 0;
  ProtoReader reader(literal);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.number != number) continue;
    if (field.type == WireType::kBytes && (IsRaw(number) || IsReal(number))) {
      if (static_cast<int64_t>(field.bytes.size()) != DTypeBytes(dtype)) return std::nullopt;
      std::memcpy(&bits, field.bytes.data(), field.bytes.size());
      ++count;
    } else if (!IsRaw(number)) {
      if (!ForEachInt64(field, [&](int64_t value) {
            bits = static_cast<uint64_t>(value);
            ++count;
          })) {
        return std::nullopt;
      }
    }
  }
  if (!reader.ok() || count != 1) return std::nullopt;
  const int64_t size = DTypeBytes(dtype);
  return size == 8 ? bits : bits & ((uint64_t{1} << (8 * size)) - 1);
}

std::optional<std::string> LiteralOf(DType dtype, uint64_t bits) {
  const uint32_t number = ElementField(dtype);
  if (number == 0) return std::nullopt;
  const int64_t size = DTypeBytes(dtype);
  ProtoWriter out;
  out.Bytes(1, ArrayShape(dtype, {}));
  if (IsRaw(number) || IsReal(number)) {
    out.Bytes(number, std::string_view(reinterpret_cast<const char*>(&bits), static_cast<size_t>(size)));
  } else if (dtype == DType::kS32) {
    out.Int64(number, static_cast<int32_t>(bits));
  } else {
    out.Int64(number, static_cast<int64_t>(bits));
  }
  return std::move(out).Take();
}

std::optional<Progression> ProgressionOf(std::string_view literal, DType dtype) {
  if (dtype != DType::kS32 && dtype != DType::kS64) return std::nullopt;
  ProtoReader reader(literal);
  ProtoField field;
  Progression out;
  int64_t count = 0, expected = 0;
  bool regular = true;
  while (reader.Next(&field)) {
    if (field.number != ElementField(dtype)) continue;
    const auto visit = [&](int64_t value) {
      if (count == 0) out.first = value;
      if (count == 1) regular = regular && !__builtin_sub_overflow(value, out.first, &out.step);
      if (count > 1) regular = regular && value == expected;
      regular = regular && (count == 0 || !__builtin_add_overflow(value, out.step, &expected));
      ++count;
    };
    if (!ForEachInt64(field, visit)) return std::nullopt;
  }
  if (!reader.ok() || !regular || count < 2) return std::nullopt;
  return out;
}

std::string WholeLiteral(DType dtype, int64_t value) {
  constexpr uint32_t kShape = 1, kS32s = 4, kS64s = 5, kF32s = 8, kF64s = 9, kF16s = 11, kBf16s = 13, kS16s = 17;
  ProtoWriter out;
  out.Bytes(kShape, ArrayShape(dtype, {}));
  const auto raw = [&out](uint32_t field, auto number) {
    out.Bytes(field, std::string_view(reinterpret_cast<const char*>(&number), sizeof number));
  };
  switch (dtype) {
    case DType::kS16:
      raw(kS16s, static_cast<int16_t>(value));
      break;
    case DType::kS32:
      out.Int64(kS32s, value);
      break;
    case DType::kF16:
      raw(kF16s, static_cast<uint16_t>(value == 0 ? 0 : 0x3c00));
      break;
    case DType::kBF16:
      raw(kBf16s, static_cast<uint16_t>(value == 0 ? 0 : 0x3f80));
      break;
    case DType::kF32:
      raw(kF32s, static_cast<float>(value));
      break;
    case DType::kF64:
      raw(kF64s, static_cast<double>(value));
      break;
    default:
      out.Int64(kS64s, value);
  }
  return std::move(out).Take();
}

}  // namespace pathways::hlo
