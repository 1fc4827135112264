// What makes host memory known to the devices of a worker, where their plugin can.
//
// Ownership: shared by those who pin; it keeps the client. Threads: any.
#ifndef PTPATHWAYS_WORKER_DEVICE_PINNER_H_
#define PTPATHWAYS_WORKER_DEVICE_PINNER_H_

#include <memory>

#include "csrc/base/pinned_memory.h"
#include "csrc/pjrt/client.h"

namespace pathways::worker {

// Null for CPU devices, which use host memory as it is, and for plugins without PJRT_Client_DmaMap.
std::shared_ptr<Pinner> PinnerOf(const std::shared_ptr<pjrt::Client>& client);

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_DEVICE_PINNER_H_
