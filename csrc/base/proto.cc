#include "csrc/base/proto.h"

#include <algorithm>
#include <cstring>

namespace pathways {
namespace {

constexpr int kMaxVarintBytes = 10;
constexpr uint64_t kMaxFieldNumber = (uint64_t{1} << 29) - 1;

}  // namespace

bool ProtoReader::Fail() {
  ok_ = false;
  return false;
}

bool ProtoReader::Varint(uint64_t* value) {
  uint64_t result = 0;
  for (int i = 0; i < kMaxVarintBytes && at_ < bytes_.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes_[at_++]);
    if (i == kMaxVarintBytes - 1 && byte > 1) return Fail();  // beyond 64 bits
    result |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) {
      *value = result;
      return true;
    }
  }
  return Fail();
}

bool ProtoReader::Take(size_t size, std::string_view* out) {
  if (size > bytes_.size() - at_) return Fail();
  *out = bytes_.substr(at_, size);
  at_ += size;
  return true;
}

bool ProtoReader::Next(ProtoField* field) {
  if (!ok_ || at_ == bytes_.size()) return false;
  const size_t start = at_;
  uint64_t tag = 0;
  if (!Varint(&tag)) return false;
  if ((tag >> 3) == 0 || (tag >> 3) > kMaxFieldNumber) return Fail();
  field->number = static_cast<uint32_t>(tag >> 3);
  field->type = static_cast<WireType>(tag & 7);
  field->value = 0;
  field->bytes = {};
  std::string_view fixed;
  switch (field->type) {
    case WireType::kVarint:
      if (!Varint(&field->value)) return false;
      break;
    case WireType::kFixed64:
      if (!Take(8, &fixed)) return false;
      std::memcpy(&field->value, fixed.data(), 8);
      break;
    case WireType::kFixed32:
      if (!Take(4, &fixed)) return false;
      std::memcpy(&field->value, fixed.data(), 4);
      break;
    case WireType::kBytes: {
      uint64_t size = 0;
      if (!Varint(&size) || !Take(size, &field->bytes)) return false;
      break;
    }
    default:
      return Fail();
  }
  field->raw = bytes_.substr(start, at_ - start);
  return true;
}

bool ForEachInt64(const ProtoField& field, const std::function<void(int64_t)>& visit) {
  if (field.type == WireType::kVarint) {
    visit(field.as_int64());
    return true;
  }
  if (field.type != WireType::kBytes) return false;
  uint64_t value = 0;
  int shift = 0;
  for (const char byte : field.bytes) {
    if (shift > 63) return false;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    shift += 7;
    if ((byte & 0x80) != 0) continue;
    visit(static_cast<int64_t>(value));
    value = 0;
    shift = 0;
  }
  return shift == 0;
}

void ProtoWriter::Varint(uint64_t value) {
  while (value >= 0x80) {
    bytes_.push_back(static_cast<char>((value & 0x7f) | 0x80));
    value >>= 7;
  }
  bytes_.push_back(static_cast<char>(value));
}

void ProtoWriter::Int64(uint32_t number, int64_t value) {
  Varint(static_cast<uint64_t>(number) << 3);
  Varint(static_cast<uint64_t>(value));
}

void ProtoWriter::Bytes(uint32_t number, std::string_view bytes) {
  Varint((static_cast<uint64_t>(number) << 3) | static_cast<uint64_t>(WireType::kBytes));
  Varint(bytes.size());
  bytes_.append(bytes);
}

bool CopyFieldsExcept(std::string_view message, std::initializer_list<uint32_t> dropped, ProtoWriter* out) {
  ProtoReader reader(message);
  ProtoField field;
  while (reader.Next(&field)) {
    if (std::find(dropped.begin(), dropped.end(), field.number) == dropped.end()) out->Raw(field.raw);
  }
  return reader.ok();
}

}  // namespace pathways
