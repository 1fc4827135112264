// Writes an entry of a table of functions that the linker has made read-only: of imported or of virtual functions.
//
// Threads: any; an entry is written in one step. Owns nothing.

#pragma once

namespace ptpathways {

// Replaces what `entry` points to by `function`, and makes its page read-only again if it was. False: errno says why
// the page cannot be written, and nothing was changed.
bool Replace(void** entry, void* function);

}  // namespace ptpathways
