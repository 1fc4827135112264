// Functions on HLO modules: pure, no session needed.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/hlo/edit.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

std::vector<hlo::ShardingBytes> Shardings(const std::vector<std::optional<py::bytes>>& values) {
  std::vector<hlo::ShardingBytes> out;
  for (const auto& value : values) out.push_back(value ? hlo::ShardingBytes(std::string(*value)) : std::nullopt);
  return out;
}

py::bytes AnnotateHlo(const py::bytes& module, const std::vector<std::optional<py::bytes>>& parameters,
                      const std::vector<std::optional<py::bytes>>& results,
                      const std::optional<std::vector<int64_t>>& donors) {
  std::string edited = Unwrap(hlo::AnnotateShardings(std::string(module), Shardings(parameters), Shardings(results)));
  if (donors) edited = Unwrap(hlo::SetDonors(edited, *donors));
  return py::bytes(edited);
}

}  // namespace

void BindHlo(py::module_& module) {
  module.def("annotate_hlo", &AnnotateHlo, py::arg("module"), py::arg("parameters"), py::arg("results"),
             py::arg("donors") = py::none());
}

}  // namespace pathways::bindings
