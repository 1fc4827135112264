// Whether another process of this machine is still there, for those who lost their connection to it.
//
// Threads: any.
#ifndef PTPATHWAYS_BASE_PROCESS_H_
#define PTPATHWAYS_BASE_PROCESS_H_

#include <cstdint>
#include <string>

namespace pathways {

// Equal texts of two processes: a process id means the same to both. Empty: nothing is known.
std::string ProcessSpace();

// True when no process has this id any more, or only its exit status is left. `pid`: of this process's space.
bool ProcessIsGone(uint64_t pid);

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_PROCESS_H_
