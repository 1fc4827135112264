// ProtoReader and ProtoWriter: the protobuf wire format, bounds-checked, without protobuf.
//
// Ownership: a reader and its fields borrow the bytes; a writer owns its own.
// Threads:   none inside; use from one thread.
//
// Enough for reading a few known fields of somebody else's message and carrying every other field over byte for byte.
// A reader never throws and never reads past its end. Groups (deprecated, in no message we meet) count as malformed.
#ifndef PTPATHWAYS_BASE_PROTO_H_
#define PTPATHWAYS_BASE_PROTO_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace pathways {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // kVarint, kFixed64, kFixed32
  std::string_view bytes;  // kBytes: the payload
  std::string_view raw;    // the whole field with its tag, for copying

  bool is(uint32_t want_number, WireType want_type) const { return number == want_number && type == want_type; }
  int64_t as_int64() const { return static_cast<int64_t>(value); }
  bool as_bool() const { return value != 0; }
};

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}

  // The next field, or false at the end and at the first malformed byte; ok() tells which.
  bool Next(ProtoField* field);
  bool ok() const { return ok_; }

 private:
  bool Varint(uint64_t* value);
  bool Take(size_t size, std::string_view* out);
  bool Fail();

  std::string_view bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

// Calls `visit` for each number of a repeated integer field, packed or not. False when malformed.
bool ForEachInt64(const ProtoField& field, const std::function<void(int64_t)>& visit);

class ProtoWriter {
 public:
  void Int64(uint32_t number, int64_t value);
  void Bool(uint32_t number, bool value) { Int64(number, value ? 1 : 0); }
  void Bytes(uint32_t number, std::string_view bytes);
  // Fields already encoded.
  void Raw(std::string_view fields) { bytes_.append(fields); }

  const std::string& bytes() const { return bytes_; }
  std::string Take() && { return std::move(bytes_); }

 private:
  void Varint(uint64_t value);

  std::string bytes_;
};

// Appends every field of `message` except those numbered in `dropped`. False when malformed.
bool CopyFieldsExcept(std::string_view message, std::initializer_list<uint32_t> dropped, ProtoWriter* out);

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_PROTO_H_
