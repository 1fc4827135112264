// ByteWriter and ByteReader: little-endian, bounds-checked encoding of the wire's fixed layouts.
//
// Ownership: a writer owns its bytes; a reader borrows them and must not outlive them.
// Threads:   none inside; use from one thread.
//
// A reader never throws and never reads past its end: the first short read makes it fail for good, and every later
// read gives zero. Decoders therefore read straight through and ask ok() once.
#ifndef PTPATHWAYS_BASE_BYTES_H_
#define PTPATHWAYS_BASE_BYTES_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pathways {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian; a big-endian host needs swaps");

class ByteWriter {
 public:
  ByteWriter() = default;
  // Begins with `header` zeros, and has room for `reserve` bytes behind them.
  ByteWriter(size_t header, size_t reserve) {
    bytes_.reserve(header + reserve);
    bytes_.resize(header);
  }

  template <typename T>
    requires std::is_arithmetic_v<T>
  void Number(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void Raw(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  // u32 length, then the bytes.
  void String(std::string_view text) {
    Number<uint32_t>(static_cast<uint32_t>(text.size()));
    Raw(text.data(), text.size());
  }
  const std::string& bytes() const { return bytes_; }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
    requires std::is_arithmetic_v<T>
  T Number() {
    T value{};
    if (!Need(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string_view Raw(size_t size) {
    if (!Need(size)) return {};
    std::string_view out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }
  std::string_view String() { return Raw(Number<uint32_t>()); }

  // A count of items each at least `min_item_bytes` long: fails early when the rest cannot hold them, so that a
  // forged count never causes a large allocation.
  uint32_t Count(size_t min_item_bytes) {
    const uint32_t count = Number<uint32_t>();
    if (ok_ && static_cast<uint64_t>(count) * min_item_bytes > remaining()) Fail();
    return ok_ ? count : 0;
  }

  bool ok() const { return ok_; }
  bool at_end() const { return at_ == bytes_.size(); }
  size_t remaining() const { return bytes_.size() - at_; }
  void Fail() { ok_ = false; }

 private:
  bool Need(size_t size) {
    if (ok_ && size <= bytes_.size() - at_) return true;
    ok_ = false;
    return false;
  }

  std::string_view bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_BYTES_H_
