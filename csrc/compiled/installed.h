// What the bindings install: who names the user's file and line when a computation is compiled, so that errors can say
// where it came from, and who wants to hear of compiles.
//
// Ownership: process-wide, leaked. Threads: any; both are called on the compiling thread without any lock of ours, and
//            may be replaced at any time.
#ifndef PTPATHWAYS_COMPILED_INSTALLED_H_
#define PTPATHWAYS_COMPILED_INSTALLED_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "csrc/hlo/summary.h"

namespace pathways::compiled {

// Null uninstalls.
void SetSourceLocator(std::function<std::string()> locator);

// "train.py:42"; empty when no locator is installed, when it does not know, and when it throws.
std::string CurrentSource();

// The module, the user's line, and how many of the module's numbers are arguments, so that modules with other ones need
// no compile (families.h).
using CompileListener = std::function<void(const hlo::HloSummary& module, const std::string& source, size_t numbers)>;

// Null uninstalls.
void SetCompileListener(CompileListener listener);

// Tells the listener, if there is one, of a module that a caller of the plugin gave to compile. A module in another
// form than HLO is not told of, and a listener that throws fails no compile.
void NoteCompile(std::string_view module, std::string_view format, const std::string& source, size_t numbers);

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_INSTALLED_H_
