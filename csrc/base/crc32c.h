// Crc32c: the checksum (Castagnoli's polynomial, RFC 3720) that finds what a disk or a copy has changed. No protection
// against somebody who changes it on purpose.
//
// Ownership: values. Threads: pure functions.
#ifndef PTPATHWAYS_BASE_CRC32C_H_
#define PTPATHWAYS_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace pathways {

// Of the bytes before, whose checksum is `before` (0: there are none), and these.
uint32_t Crc32c(const void* bytes, size_t size, uint32_t before = 0);

namespace internal {
uint32_t Crc32cOfTable(const void* bytes, size_t size, uint32_t before);  // where the processor has no instruction
}

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_CRC32C_H_
