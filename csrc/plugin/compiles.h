// Who wants to hear of compiles: told of every module that a caller of the plugin gives to compile.
//
// Ownership: process-wide, installed by the bindings, leaked. Threads: any; the listener is called on the compiling
// thread without any lock of ours, and may be replaced at any time.
#ifndef PTPATHWAYS_PLUGIN_COMPILES_H_
#define PTPATHWAYS_PLUGIN_COMPILES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "csrc/hlo/summary.h"

namespace pathways::plugin {

// The module, the user's line (source.h), and how many of the module's numbers are arguments, so that modules with
// other ones need no compile (families.h).
using CompileListener = std::function<void(const hlo::HloSummary& module, const std::string& source, size_t numbers)>;

// Null uninstalls.
void SetCompileListener(CompileListener listener);

// Tells the listener, if there is one. A module in another form than HLO is not told of, and a listener that throws
// fails no compile.
void NoteCompile(std::string_view module, std::string_view format, const std::string& source, size_t numbers);

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_COMPILES_H_
