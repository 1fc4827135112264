// EnqueueProbe: what a plugin's Execute does with an argument that is not there yet (EnqueueAhead).
//
// Whether it makes its caller wait: XLA's CPU and TPU clients enqueue and return. Its CUDA client waits unless
// asynchronous dispatch is on, and other plugins may. An engine thread that sleeps there hears of no lost host, so such
// executions are held back until their arguments are there.
//
// And if it does not, what becomes of an execution whose argument fails after that. XLA's CPU client fails it, and what
// was enqueued on its results; its CUDA client runs both on whatever lies in the memory, and says that they went well.
//
// What a plugin does is tried, once, when the worker starts.
//
// Ownership: plain function. Threads: blocks the caller, at most for kEnqueuePatience, kEventPatience and a compile.
#ifndef PTPATHWAYS_WORKER_ENQUEUE_PROBE_H_
#define PTPATHWAYS_WORKER_ENQUEUE_PROBE_H_

#include <chrono>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/pjrt/client.h"

namespace pathways::worker {

// A plugin that has not returned after this long waits.
inline constexpr std::chrono::milliseconds kEnqueuePatience{500};
// An event that has not been set by then will not be.
inline constexpr std::chrono::seconds kEventPatience{10};

struct ProbedEnqueue {
  bool waits = false;            // for the arguments; then nothing else was tried
  bool hands_errors_on = false;  // an argument's, to all that was enqueued on it before: to done events and results
  bool ends_waits = true;        // the failed buffer's own event is set; else nothing further was tried
};
Result<ProbedEnqueue> ProbeEnqueue(const std::shared_ptr<pjrt::Client>& client,
                                   std::chrono::milliseconds patience = kEventPatience);

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ENQUEUE_PROBE_H_
