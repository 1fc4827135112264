// The source locator: names the user's file and line when a computation is compiled, so that errors can say where it
// came from.
//
// Ownership: process-wide, installed by the bindings, leaked. Threads: any; the locator is called on the compiling
// thread without any lock of ours, and may be replaced at any time.
#ifndef PTPATHWAYS_PLUGIN_SOURCE_H_
#define PTPATHWAYS_PLUGIN_SOURCE_H_

#include <functional>
#include <string>

namespace pathways::plugin {

// Null uninstalls.
void SetSourceLocator(std::function<std::string()> locator);

// "train.py:42"; empty when none is installed, when it does not know, and when it throws.
std::string CurrentSource();

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_SOURCE_H_
