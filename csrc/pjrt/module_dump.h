// A module as it is at one stage of a compile. There is no call for that in the PJRT C API. But a compile can be told
// to write the module down on its way (XLA's debug options, given as overrides of the compile options), so we compile
// and read what it wrote.
//
// Ownership: borrows the client for the call, which has a folder of its own. Threads: any.
#ifndef PTPATHWAYS_PJRT_MODULE_DUMP_H_
#define PTPATHWAYS_PJRT_MODULE_DUMP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/pjrt/client.h"

namespace pathways::pjrt {

enum class Stage : uint8_t {
  kRead,         // as it was given, in HLO
  kPartitioned,  // after XLA's SPMD partitioning, before optimisation
};

// A serialized HloModuleProto; nothing if the plugin does not write it down. `scratch`: an existing folder for files
// that live as long as the call; empty: the system's temporary folder. A compile that fails before the stage is an
// error; of HLO that is to be partitioned, no more than that is compiled.
Result<std::optional<std::string>> CompileAndDump(Client* client, std::string_view module, std::string_view format,
                                                  std::string_view options, Stage stage, const std::string& scratch);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_MODULE_DUMP_H_
