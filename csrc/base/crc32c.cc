#include "csrc/base/crc32c.h"

#include <array>
#include <cstring>

namespace pathways {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82f63b78u : 0);
    table[i] = value;
  }
  return table;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t OfInstruction(const void* bytes, size_t size, uint32_t before) {
  const char* next = static_cast<const char*>(bytes);
  uint64_t crc = ~before;
  for (; size >= 8; size -= 8, next += 8) {
    uint64_t word;
    std::memcpy(&word, next, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  uint32_t rest = static_cast<uint32_t>(crc);
  for (; size > 0; --size, ++next) rest = __builtin_ia32_crc32qi(rest, static_cast<uint8_t>(*next));
  return ~rest;
}
#endif

}  // namespace

uint32_t internal::Crc32cOfTable(const void* bytes, size_t size, uint32_t before) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  const uint8_t* next = static_cast<const uint8_t*>(bytes);
  uint32_t crc = ~before;
  for (; size > 0; --size, ++next) crc = (crc >> 8) ^ kTable[(crc ^ *next) & 0xff];
  return ~crc;
}

uint32_t Crc32c(const void* bytes, size_t size, uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return OfInstruction(bytes, size, before);
#endif
  return internal::Crc32cOfTable(bytes, size, before);
}

}  // namespace pathways
