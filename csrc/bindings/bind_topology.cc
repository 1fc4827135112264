// Topology: compiling for devices that this machine does not have.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/hlo/collective_check.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/module_costs.h"
#include "csrc/hlo/xla_mistakes.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/topology.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

struct PyTopology {
  std::unique_ptr<const pjrt::Topology> topology;
};

struct CompiledFor {
  std::unique_ptr<pjrt::Compiled> compiled;
  std::map<DType, int64_t> flops;
  std::vector<hlo::CollectiveUse> collectives;
  bool shows_program = false;
};

// As the compiler of a worker prepares a module for devices of one client.
Result<std::string> Prepared(std::string_view module, int64_t partitions) {
  PW_RETURN_IF_ERROR(hlo::CheckCollectives(module, 1, partitions));
  PW_ASSIGN_OR_RETURN(std::string edited, hlo::AvoidXlaMistakes(module, {partitions > 1, false}));
  return partitions > 1 ? hlo::SplitAllReduces(edited) : Result<std::string>(std::move(edited));
}

Result<CompiledFor> CompileFor(const pjrt::Topology& topology, std::string_view module, int64_t partitions) {
  if (partitions < 1 || partitions > static_cast<int64_t>(topology.devices().size())) {
    return InvalidArgument("a computation over " + std::to_string(partitions) +
                           " devices needs as many in the topology, got " + std::to_string(topology.devices().size()));
  }
  PW_ASSIGN_OR_RETURN(const std::string prepared, Prepared(module, partitions));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < partitions; ++i) ids.push_back(topology.devices()[static_cast<size_t>(i)].id);
  PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForDevices("", 1, partitions, ids));
  CompiledFor out;
  PW_ASSIGN_OR_RETURN(out.flops, hlo::CountFlops(prepared));
  PW_ASSIGN_OR_RETURN(out.compiled, topology.Compile(prepared, "hlo", options));
  const auto program = out.compiled->GetOptimizedProgram();  // a plugin need not show it
  if (!program.ok()) return out;
  const auto optimized = hlo::HloModuleOfProgram(program->format, program->code);
  if (!optimized.ok()) return out;
  PW_ASSIGN_OR_RETURN(out.collectives, hlo::ListCollectives(*optimized, static_cast<uint32_t>(partitions)));
  out.shows_program = true;
  return out;
}

py::dict Described(const CompiledFor& made) {
  py::dict out;
  const pjrt::CompiledMemory memory = made.compiled->MemoryStats().value_or(pjrt::CompiledMemory());
  py::dict bytes;
  bytes["arguments"] = memory.arguments;
  bytes["outputs"] = memory.outputs;
  bytes["aliased"] = memory.aliased;
  bytes["temporary"] = memory.temporary;
  bytes["peak"] = memory.peak;
  bytes["generated_code"] = memory.generated_code;
  out["memory"] = bytes;
  py::dict costs;
  if (const auto analysis = made.compiled->CostAnalysis(); analysis.ok()) {
    for (const auto& [name, value] : *analysis) costs[py::str(name)] = py::cast(value);
  }
  out["costs"] = costs;
  py::dict flops;
  for (const auto& [dtype, count] : made.flops) flops[py::str(std::string(DTypeName(dtype)))] = count;
  out["flops"] = flops;
  out["collectives"] = py::none();
  if (made.shows_program) {
    py::list collectives;
    for (const hlo::CollectiveUse& use : made.collectives) {
      collectives.append(py::make_tuple(use.opcode, use.bytes, use.groups));
    }
    out["collectives"] = collectives;
  }
  return out;
}

}  // namespace

void BindTopology(py::module_& module) {
  py::class_<PyTopology>(module, "Topology")
      .def(py::init([](const std::string& plugin, const std::string& name, const py::dict& options) {
             const pjrt::NamedValues values = CreateOptions(options);
             py::gil_scoped_release release;
             auto made = [&]() -> Result<std::unique_ptr<pjrt::Topology>> {
               PW_ASSIGN_OR_RETURN(auto api, pjrt::Api::Load(plugin));
               return pjrt::Topology::Create(std::move(api), name, values);
             }();
             py::gil_scoped_acquire acquire;
             return PyTopology{Unwrap(std::move(made))};
           }),
           py::arg("plugin"), py::arg("name"), py::arg("options"))
      .def_property_readonly("device_kinds",
                             [](const PyTopology& self) {
                               std::vector<std::string> kinds;
                               for (const auto& device : self.topology->devices()) kinds.push_back(device.kind);
                               return kinds;
                             })
      .def_property_readonly("platform_version",
                             [](const PyTopology& self) { return self.topology->platform_version(); })
      .def(
          "compile",
          [](const PyTopology& self, const py::bytes& hlo, int64_t partitions) {
            const std::string bytes = hlo;
            py::gil_scoped_release release;
            Result<CompiledFor> made = CompileFor(*self.topology, bytes, partitions);
            py::gil_scoped_acquire acquire;
            return Described(Unwrap(std::move(made)));
          },
          py::arg("module"), py::arg("partitions"));
}

}  // namespace pathways::bindings
