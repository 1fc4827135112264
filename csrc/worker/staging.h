// Staging: tensors in host memory whose devices have none to spare, and how they get back.
//
// Ownership: plain functions. Threads: StagedToDevice may be called from any thread.
#ifndef PTPATHWAYS_WORKER_STAGING_H_
#define PTPATHWAYS_WORKER_STAGING_H_

#include <cstdint>
#include <memory>

#include "csrc/base/host_memory.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/worker/host_context.h"

namespace pathways::worker {

// How many bytes of this host's memory may be used for them.
int64_t StagingLimit(const HostContext& context);

// A buffer that fills itself with these bytes, on the data thread.
Result<pjrt::Buffer> StagedToDevice(pjrt::Client& client, dataplane::DataPlane& data,
                                    std::shared_ptr<const HostMemory> bytes, const TensorType& type, size_t device);

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_STAGING_H_
