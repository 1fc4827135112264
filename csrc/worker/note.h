// Note: a sentence for whoever started the cluster, about work that goes on in a worse way: a missing library, a cache
// that cannot be used. A line of the worker's log, which begins so that the starter finds it there
// (ptpathways/launch/_processes.py).
//
// Threads: any.
#ifndef PTPATHWAYS_WORKER_NOTE_H_
#define PTPATHWAYS_WORKER_NOTE_H_

#include <string_view>

#include "csrc/base/log.h"

namespace pathways::worker {

inline void Note(std::string_view text) { logging::Warning("worker notes", text); }

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_NOTE_H_
