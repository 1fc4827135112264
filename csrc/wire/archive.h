// Encode<T>() and Decode<T>(): bodies to bytes and back, driven by each body's Fields().
//
// Layout: numbers little-endian in declared order, enums as their underlying number, strings and arrays as a u32
// count and their items, Status as an i32 code and a string, TensorType as a u8 element type and an array of i64.
// A decoder takes exactly the whole body: trailing bytes are an error, as are unknown codes and element types.
//
// Threads: none inside.
#ifndef PTPATHWAYS_WIRE_ARCHIVE_H_
#define PTPATHWAYS_WIRE_ARCHIVE_H_

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "csrc/base/bytes.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/wire/message.h"

namespace pathways::wire {

class WriteArchive {
 public:
  WriteArchive() = default;
  // Leaves `header` bytes before the body, and has room for `reserve` more.
  WriteArchive(size_t header, size_t reserve) : writer_(header, reserve) {}

  template <typename T>
  WriteArchive& operator()(const T& value) {
    Put(value);
    return *this;
  }
  std::string Take() && { return std::move(writer_).Take(); }

 private:
  template <typename T>
  void Put(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      writer_.Number(value);
    } else if constexpr (std::is_enum_v<T>) {
      writer_.Number(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::is_same_v<T, std::string>) {
      writer_.String(value);
    } else if constexpr (std::is_same_v<T, Status>) {
      writer_.Number(static_cast<int32_t>(value.code()));
      writer_.String(value.message());
    } else if constexpr (std::is_same_v<T, TensorType>) {
      writer_.Number(static_cast<uint8_t>(value.dtype));
      Put(value.dims);
    } else {
      const_cast<T&>(value).Fields(*this);  // Fields() is one declaration for both directions
    }
  }
  template <typename T>
  void Put(const std::vector<T>& items) {
    writer_.Number(static_cast<uint32_t>(items.size()));
    if constexpr (std::is_arithmetic_v<T>) {
      writer_.Raw(items.data(), items.size() * sizeof(T));
    } else {
      for (const T& item : items) Put(item);
    }
  }

  ByteWriter writer_;
};

class ReadArchive {
 public:
  explicit ReadArchive(std::string_view body) : reader_(body) {}

  template <typename T>
  ReadArchive& operator()(T& value) {
    Get(value);
    return *this;
  }
  bool complete() const { return reader_.ok() && reader_.at_end(); }
  bool ok() const { return reader_.ok(); }
  const std::string& reason() const { return reason_; }

 private:
  template <typename T>
  void Get(T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      value = reader_.Number<T>();
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(reader_.Number<std::underlying_type_t<T>>());
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = std::string(reader_.String());
    } else if constexpr (std::is_same_v<T, Status>) {
      const int32_t code = reader_.Number<int32_t>();
      std::string message(reader_.String());
      if (!IsKnownCode(code)) return Fail("an unknown status code");
      if (code == 0 && !message.empty()) return Fail("a message with the status OK");
      value = Status(static_cast<Code>(code), std::move(message));
    } else if constexpr (std::is_same_v<T, TensorType>) {
      value.dtype = static_cast<DType>(reader_.Number<uint8_t>());
      Get(value.dims);
      if (reader_.ok() && !value.Validate().ok()) Fail(value.Validate().message());
    } else {
      value.Fields(*this);
    }
  }
  template <typename T>
  void Get(std::vector<T>& items) {
    if constexpr (std::is_arithmetic_v<T>) {
      const uint32_t count = reader_.Count(sizeof(T));
      items.resize(count);
      const std::string_view raw = reader_.Raw(count * sizeof(T));
      if (!raw.empty()) std::memcpy(items.data(), raw.data(), raw.size());
    } else {
      const uint32_t count = reader_.Count(1);
      items.clear();
      for (uint32_t i = 0; i < count && reader_.ok(); ++i) Get(items.emplace_back());
    }
  }
  void Fail(std::string_view reason) {
    if (reason_.empty()) reason_ = reason;
    reader_.Fail();
  }

  ByteReader reader_;
  std::string reason_;
};

// A RUN of a few arguments is no longer, and is encoded without another allocation.
inline constexpr size_t kUsualBodyBytes = 128;

// The head frame of a message with this body.
template <typename Body>
std::string Encode(const Body& body, uint64_t sequence = 0) {
  WriteArchive archive(kHeaderBytes, kUsualBodyBytes);
  archive(body);
  std::string frame = std::move(archive).Take();
  WriteHeader(frame, Body::kType, sequence);
  return frame;
}

// Replaces all values of `body`, and uses the memory of its arrays.
template <typename Body>
Status DecodeInto(std::string_view body_bytes, Body& body) {
  ReadArchive archive(body_bytes);
  archive(body);
  if (archive.complete()) return OkStatus();
  std::string why = !archive.reason().empty() ? archive.reason()
                    : archive.ok()            ? "bytes left over after the last field"
                                              : "it ends before its last field";
  return DataLoss("malformed " + std::string(TypeName(Body::kType)) + " message of " +
                  std::to_string(body_bytes.size()) + " bytes: " + why);
}

template <typename Body>
Result<Body> Decode(std::string_view body_bytes) {
  Body body;
  PW_RETURN_IF_ERROR(DecodeInto(body_bytes, body));
  return body;
}

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_ARCHIVE_H_
