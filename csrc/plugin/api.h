// The door of the plugin room: the table of the PJRT C API.
//
// Threads: immutable.
#ifndef PTPATHWAYS_PLUGIN_API_H_
#define PTPATHWAYS_PLUGIN_API_H_

#include "csrc_generated/pjrt_abi.h"

// What callers look up in the shared library.
extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi();

#endif  // PTPATHWAYS_PLUGIN_API_H_
