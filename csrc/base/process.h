// Whether another process of this machine is still there, for those who lost their connection to it; and whether this
// one is a forked copy, which has none of the threads that its memory tells of.
//
// Ownership: one number of the process. Threads: any. Locks: none.
#ifndef PTPATHWAYS_BASE_PROCESS_H_
#define PTPATHWAYS_BASE_PROCESS_H_

#include <cstdint>
#include <string>

namespace pathways {

// Equal texts of two processes: a process id means the same to both. Empty: nothing is known.
std::string ProcessSpace();

// True when no process has this id any more, or only its exit status is left. `pid`: of this process's space.
bool ProcessIsGone(uint64_t pid);

// From now on a forked child of this process knows that it is one. When it exits, it does so without the destructors of
// what it has inherited.
void NoteForks();

// The process that called NoteForks, in a child that was forked from it since; 0 elsewhere.
int ForkedFrom();

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_PROCESS_H_
