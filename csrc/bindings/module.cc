// The Python extension's entry point: ptpathways.native._native.
#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <utility>

#include "csrc/bindings/bindings.h"
#include "csrc/wire/message.h"
#include "csrc_generated/pjrt_abi.h"
#include "csrc_generated/version.h"

namespace {

// The path of this very library, which torch_xla loads again as a PJRT plugin.
std::string LibraryPath() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&LibraryPath), &info) != 0 && info.dli_fname ? info.dli_fname : "";
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.attr("__version__") = PTPATHWAYS_VERSION;
  // (major, minor) of the PJRT C API this library was built for.
  module.attr("abi_version") = std::make_pair(PJRT_API_MAJOR, PJRT_API_MINOR);
  module.attr("protocol_version") = static_cast<int>(pathways::wire::kProtocolVersion);
  module.attr("library_path") = LibraryPath();
  pathways::bindings::BindErrors(module);
  pathways::bindings::BindWorker(module);
  pathways::bindings::BindController(module);
  pathways::bindings::BindSession(module);
  pathways::bindings::BindPlugin(module);
  pathways::bindings::BindSim(module);
  pathways::bindings::BindHlo(module);
  pathways::bindings::BindCapture(module);
  pathways::bindings::BindFiles(module);
  pathways::bindings::BindCollective(module);
  pathways::bindings::BindPipelines(module);
  pathways::bindings::BindTopology(module);
  pathways::bindings::BindInterrupt(module);
  pathways::bindings::BindObjects(module);
}
