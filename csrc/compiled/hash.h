// ContentHash: 128 bits that name a text, for telling equal programs from different ones.
//
// Not a defence against somebody who builds collisions on purpose: a client only ever compares its own programs.
// Threads: pure function.
#ifndef PTPATHWAYS_COMPILED_HASH_H_
#define PTPATHWAYS_COMPILED_HASH_H_

#include <string>
#include <string_view>

namespace pathways::compiled {

// 32 hexadecimal digits.
std::string ContentHash(std::string_view text);

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_HASH_H_
