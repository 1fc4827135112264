// Element types and tensor types: the value that names what a buffer holds.
//
// Threads: plain values.
#ifndef PTPATHWAYS_BASE_TENSOR_TYPE_H_
#define PTPATHWAYS_BASE_TENSOR_TYPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways {

// Numbers equal PJRT_Buffer_Type, so they cross the PJRT boundary and the wire unchanged.
enum class DType : uint8_t {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kC64 = 14,
  kC128 = 15,
  kF8E5M2 = 16,
  kF8E4M3FN = 17,
  kF8E4M3B11FNUZ = 18,
  kF8E5M2FNUZ = 19,
  kF8E4M3FNUZ = 20,
};

// Bytes of one element in host memory; 0 for a type this system does not carry.
int64_t DTypeBytes(DType dtype);

// "f32", "bf16", "pred", ...; "invalid" for anything else.
std::string_view DTypeName(DType dtype);

// The DType of XLA's PrimitiveType number (xla_data.proto), or kInvalid.
DType DTypeFromXlaPrimitive(int64_t primitive_type);

// XLA's PrimitiveType number of a DType, or 0.
int64_t XlaPrimitiveFromDType(DType dtype);

// Dense, row-major in host memory.
struct TensorType {
  DType dtype = DType::kInvalid;
  std::vector<int64_t> dims;

  int64_t ElementCount() const;
  int64_t ByteSize() const { return ElementCount() * DTypeBytes(dtype); }
  // "f32[8,128]"
  std::string ToString() const;
  // Rejects unknown element types, negative dimensions and sizes beyond 2^47 bytes.
  Status Validate() const;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_TENSOR_TYPE_H_
