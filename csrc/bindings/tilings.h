// Tilings as Python writes them: (parts per dimension, tile per device), or None for a single device.
//
// Ownership: plain values. Threads: used with the GIL held.
#ifndef PTPATHWAYS_BINDINGS_TILINGS_H_
#define PTPATHWAYS_BINDINGS_TILINGS_H_

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/base/tiling.h"
#include "csrc/bindings/bindings.h"

namespace pathways::bindings {

using TilingParts = std::pair<std::vector<int64_t>, std::vector<uint32_t>>;

// Raises INVALID_ARGUMENT.
inline TilingPtr ToTiling(const std::optional<TilingParts>& parts) {
  return parts ? Intern(Unwrap(Tiling::Make(parts->first, parts->second))) : nullptr;
}

inline pybind11::object TilingToPython(const TilingPtr& tiling) {
  namespace py = pybind11;
  if (tiling == nullptr) return py::none();
  return py::make_tuple(py::tuple(py::cast(std::vector<int64_t>(tiling->parts().begin(), tiling->parts().end()))),
                        py::tuple(py::cast(std::vector<uint32_t>(tiling->tiles().begin(), tiling->tiles().end()))));
}

}  // namespace pathways::bindings

#endif  // PTPATHWAYS_BINDINGS_TILINGS_H_
