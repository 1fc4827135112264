// Uploads: from an array in this process to a value, and how it lies on a slice.
//
// Ownership: the array is copied or sent before a call returns. Threads: any; a layout is the calling thread's.
#ifndef PTPATHWAYS_VALUES_UPLOAD_H_
#define PTPATHWAYS_VALUES_UPLOAD_H_

#include <cstddef>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/base/tiling.h"
#include "csrc/values/value.h"

namespace pathways::values {

// How what the calling thread uploads lies on a slice of several devices.
struct UploadLayout {
  enum class Kind {
    kBatch,   // its first dimension divided over the devices where that is possible, else a copy on each
    kCopy,    // a copy on each device
    kTiling,  // as `tiling` says, for tensors of its rank on as many devices; others as kBatch
  } kind = Kind::kBatch;
  TilingPtr tiling;
};
// Gives what was set before.
UploadLayout SetUploadLayout(UploadLayout layout);
// Null for a slice of one device.
TilingPtr UploadTiling(const TensorType& type, size_t devices);

// Uploads a dense, row-major tensor; each device of the slice gets its part.
Result<ValuePtr> UploadValue(const std::shared_ptr<ClientState>& client, PJRT_Device* device, const TensorType& type,
                             const void* dense, const TilingPtr& tiling);

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_UPLOAD_H_
