// The Python extension's entry point: ptpathways.native._native.
#include <pybind11/pybind11.h>

#include <utility>

#include "csrc_generated/pjrt_abi.h"
#include "csrc_generated/version.h"

PYBIND11_MODULE(_native, module) {
  module.attr("__version__") = PTPATHWAYS_VERSION;
  // (major, minor) of the PJRT C API this library was built for.
  module.attr("abi_version") = std::make_pair(PJRT_API_MAJOR, PJRT_API_MINOR);
}
