#include "csrc/hlo/literal.h"

#include <cstring>

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {

std::optional<uint64_t> ScalarOf(std::string_view literal, DType dtype) {
  uint32_t number = 0;
  switch (dtype) {
    case DType::kPred:
      number = 2;
      break;
    case DType::kU8:
      number = 3;
      break;
    case DType::kS32:
      number = 4;
      break;
    case DType::kS64:
      number = 5;
      break;
    case DType::kU32:
      number = 6;
      break;
    case DType::kU64:
      number = 7;
      break;
    case DType::kF32:
      number = 8;
      break;
    case DType::kF64:
      number = 9;
      break;
    case DType::kF16:
      number = 11;
      break;
    case DType::kBF16:
      number = 13;
      break;
    case DType::kS8:
      number = 15;
      break;
    default:
      return std::nullopt;
  }
  uint64_t bits = 0;
  int count = 0;
  ProtoReader reader(literal);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.number != number) continue;
    const bool raw = number == 3 || number == 11 || number == 13 || number == 15;  // of type bytes
    const bool real = number == 8 || number == 9;                                  // fixed size, packed or not
    if (field.type == WireType::kBytes && (raw || real)) {
      if (static_cast<int64_t>(field.bytes.size()) != DTypeBytes(dtype)) return std::nullopt;
      std::memcpy(&bits, field.bytes.data(), field.bytes.size());
      ++count;
    } else if (!raw) {
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
