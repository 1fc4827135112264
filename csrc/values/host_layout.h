// How an array lies in the caller's memory, and copying between such layouts and the dense row-major one that the
// cluster carries. Threads: pure functions.
#ifndef PTPATHWAYS_VALUES_HOST_LAYOUT_H_
#define PTPATHWAYS_VALUES_HOST_LAYOUT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::values {

// Bytes from one element to the next along each dimension.
using ByteStrides = std::vector<int64_t>;

ByteStrides RowMajorStrides(const TensorType& type);

// Whether `strides` describe the dense row-major layout; dimensions of size 1 do not matter.
bool IsRowMajor(const TensorType& type, std::span<const int64_t> strides);

// The strides that a layout of the C API describes. Null is row-major. UNIMPLEMENTED: tiles.
Result<ByteStrides> StridesOf(const PJRT_Buffer_MemoryLayout* layout, const TensorType& type);

// OK when `layout`, as the layout an array is to have on its device, is row-major; UNIMPLEMENTED otherwise.
Status CheckDeviceLayout(const PJRT_Buffer_MemoryLayout* layout, const TensorType& type);

// The type of an array described through the C API. UNIMPLEMENTED: an element type that is not carried.
Result<TensorType> TypeFromC(PJRT_Buffer_Type type, const int64_t* dims, size_t num_dims);

// Copies every element. Both arrays have the dimensions of `type`; strides may be negative.
void CopyElements(const TensorType& type, const void* from, std::span<const int64_t> from_strides, void* to,
                  std::span<const int64_t> to_strides);

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_HOST_LAYOUT_H_
