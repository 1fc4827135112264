// Sha256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): keys derived of keys, and names that only their maker can make.
//
// Ownership: values. Threads: pure functions.
#ifndef PTPATHWAYS_BASE_SHA256_H_
#define PTPATHWAYS_BASE_SHA256_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pathways {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::string_view text);
Sha256Digest HmacSha256(std::string_view key, std::string_view text);

// Lower-case hexadecimal digits.
std::string Hex(std::string_view bytes);
inline std::string Hex(const Sha256Digest& digest) {
  return Hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

// `size` bytes of the kernel's random generator.
std::string RandomBytes(size_t size);

// Whether two texts are equal, in a time that does not tell where they differ.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_SHA256_H_
