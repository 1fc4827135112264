// EnqueueProbe: whether a plugin's Execute makes its caller wait until the arguments have arrived.
//
// XLA's CPU and TPU clients enqueue and return. Its CUDA client waits unless asynchronous dispatch is on, and other
// plugins may. An engine thread that sleeps there hears of no lost host, so such executions are held back until their
// arguments are there. What a plugin does is tried, once, when the worker starts.
//
// Ownership: plain function. Threads: blocks the caller, at most for kEnqueuePatience and a compile.
#ifndef PTPATHWAYS_WORKER_ENQUEUE_PROBE_H_
#define PTPATHWAYS_WORKER_ENQUEUE_PROBE_H_

#include <chrono>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/pjrt/client.h"

namespace pathways::worker {

// A plugin that has not returned after this long waits.
inline constexpr std::chrono::milliseconds kEnqueuePatience{500};

Result<bool> EnqueueWaitsForArguments(const std::shared_ptr<pjrt::Client>& client);

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ENQUEUE_PROBE_H_
