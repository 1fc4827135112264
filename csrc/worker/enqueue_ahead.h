// EnqueueAhead: which of its arguments must be there before a computation is enqueued on this host's plugin
// (EnqueueProbe finds out).
//
// Ownership: plain value.
#ifndef PTPATHWAYS_WORKER_ENQUEUE_AHEAD_H_
#define PTPATHWAYS_WORKER_ENQUEUE_AHEAD_H_

#include <cstdint>

namespace pathways::worker {

enum class EnqueueAhead : uint8_t {
  kAlways,          // none: what fails hands its error on to all that was enqueued on it, as XLA's CPU client does
  kAfterTransfers,  // those that transfers fill: no error is handed on; what runs make is followed (KnownValues)
  kAfterArguments,  // all: Execute makes its caller wait for them, and perhaps hands no error on
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ENQUEUE_AHEAD_H_
