// Executables: programs, as callers of the plugin see them.
//
// Ownership: the caller's, until they are destroyed; both share one program. Threads: every slot may be called from any
// thread.
#ifndef PTPATHWAYS_PLUGIN_EXECUTABLE_H_
#define PTPATHWAYS_PLUGIN_EXECUTABLE_H_

#include <atomic>
#include <memory>

#include "csrc/compiled/program.h"
#include "csrc_generated/pjrt_abi.h"

struct PJRT_Executable {
  std::shared_ptr<const pathways::compiled::Program> program;
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<const pathways::compiled::Program> program;
  std::atomic<bool> deleted{false};
};

#endif  // PTPATHWAYS_PLUGIN_EXECUTABLE_H_
