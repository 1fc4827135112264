// The callback pool: threads for what may take its time, and for code of callers that a thread of ours must not run.
//
// Ownership: process-wide and never destroyed. Threads: any. Locks: one, for the queue, a leaf; work runs without it.
#ifndef PTPATHWAYS_VALUES_CALLBACK_POOL_H_
#define PTPATHWAYS_VALUES_CALLBACK_POOL_H_

#include <functional>

namespace pathways::values {

// Runs `work` on a thread of the pool. Threads are started as long as all others are busy, up to a bound, so that work
// which waits for other work gets through.
void RunOnPool(std::function<void()> work);

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_CALLBACK_POOL_H_
