#include "csrc/compiled/hash.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace pathways::compiled {
namespace {

// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

std::string ContentHash(std::string_view text) {
  uint64_t a = 0x9e3779b97f4a7c15 ^ text.size();
  uint64_t b = 0xd1b54a32d192ed03 + text.size();
  for (size_t at = 0; at < text.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
    a = Mix(a ^ word) + 0x9e3779b97f4a7c15;
    b = Mix(b + word * 0xff51afd7ed558ccd) ^ a;
  }
  char out[33];
  std::snprintf(out, sizeof(out), "%016llx%016llx", static_cast<unsigned long long>(Mix(a)),
                static_cast<unsigned long long>(Mix(b)));
  return out;
}

}  // namespace pathways::compiled
