// Note: a sentence for whoever started the cluster, about work that goes on in a worse way: a missing library, a cache
// that cannot be used. A line of the worker's log, which begins so that the starter finds it there
// (ptpathways/launch/_processes.py).
//
// Threads: any.
#ifndef PTPATHWAYS_WORKER_NOTE_H_
#define PTPATHWAYS_WORKER_NOTE_H_

#include <algorithm>
#include <cstdio>
#include <string>

namespace pathways::worker {

inline void Note(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fprintf(stderr, "ptpathways worker notes: %s\n", text.c_str());
}

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_NOTE_H_
