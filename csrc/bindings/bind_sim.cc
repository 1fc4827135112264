// SimulatedCluster: hosts with simulated devices for the embedded controller of this process.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/sim/cluster.h"
#include "csrc_generated/version.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

struct PyCluster {
  std::unique_ptr<sim::Cluster> cluster;
};
struct PyTrace {
  sim::Trace trace;
  uint32_t devices_per_host = 1;
};

sim::Meeting ParseMeeting(const std::string& text) {
  if (text == "always") return sim::Meeting::kAlways;
  if (text == "explicit") return sim::Meeting::kExplicit;
  if (text == "never") return sim::Meeting::kNever;
  Raise(InvalidArgument("expected rendezvous 'always', 'explicit' or 'never', got '" + text + "'"));
}

PyCluster Start(const py::dict& options, double timeout_s) {
  sim::ClusterSpec spec;
  spec.build = PTPATHWAYS_VERSION;
  spec.hosts = Option<uint32_t>(options, "hosts", 1);
  spec.devices_per_host = Option<uint32_t>(options, "devices_per_host", 1);
  spec.islands = Option<uint32_t>(options, "islands", 1);
  spec.memory_bytes = Option<int64_t>(options, "memory_bytes", spec.memory_bytes);
  spec.compile_ns = static_cast<int64_t>(Option<double>(options, "compile_us", 0) * 1e3);
  spec.compiler.default_cost_us = Option<double>(options, "cost_us", spec.compiler.default_cost_us);
  for (const auto& [pattern, cost_us] : Option<std::vector<std::pair<std::string, double>>>(options, "costs_us", {})) {
    spec.compiler.costs.push_back({pattern, cost_us});
  }
  spec.compiler.collective_us = Option<double>(options, "collective_us", 0);
  spec.compiler.meeting = ParseMeeting(Option<std::string>(options, "rendezvous", "always"));
  spec.network.latency_ns = static_cast<int64_t>(Option<double>(options, "latency_us", 0) * 1e3);
  spec.network.bytes_per_ns = Option<double>(options, "bandwidth_gbs", 0);
  spec.network.local_bytes_per_ns = Option<double>(options, "local_bandwidth_gbs", 0);
  std::shared_ptr<controller::Controller> controller = EmbeddedController();
  if (!controller) Raise(FailedPrecondition("this process has no embedded controller; start one first"));
  Result<std::unique_ptr<sim::Cluster>> cluster = [&] {
    py::gil_scoped_release release;
    return sim::Cluster::Start(std::move(controller), std::move(spec), Milliseconds(timeout_s));
  }();
  return {Unwrap(std::move(cluster))};
}

py::dict Stats(PyCluster& self) {
  const sim::ClusterStats stats = [&] {
    py::gil_scoped_release release;
    return self.cluster->Stats();
  }();
  py::dict out;
  out["enqueued"] = stats.enqueued;
  out["last_enqueue_ns"] = stats.last_enqueue_ns;
  out["messages"] = stats.messages;
  out["waiting_gangs"] = stats.waiting_gangs;
  out["buffers"] = stats.buffers;
  out["bytes"] = stats.bytes;
  out["intervals_dropped"] = stats.intervals_dropped;
  out["deadlocks"] = stats.deadlocks;
  out["last_refusal"] = stats.last_refusal;
  return out;
}

py::list Intervals(const PyTrace& self) {
  py::list out;
  for (const sim::Interval& interval : self.trace.intervals()) {
    out.append(py::make_tuple(interval.device, interval.client, self.trace.names()[interval.program],
                              self.trace.names()[interval.node], interval.run, interval.arrived, interval.start,
                              interval.end));
  }
  return out;
}

}  // namespace

void BindSim(py::module_& module) {
  py::class_<PyTrace>(module, "SimulatedTrace")
      .def("__len__", [](const PyTrace& self) { return self.trace.intervals().size(); })
      .def_property_readonly("dropped", [](const PyTrace& self) { return self.trace.dropped(); })
      .def("intervals", &Intervals)
      .def("to_chrome_json",
           [](const PyTrace& self) {
             py::gil_scoped_release release;
             std::string text = sim::ToChromeJson(self.trace, self.devices_per_host);
             py::gil_scoped_acquire acquire;
             return py::str(text);
           })
      .def(
          "to_svg",
          [](const PyTrace& self, double from_ms, double to_ms, uint32_t max_devices, double width) {
            sim::PictureOptions options;
            options.from = static_cast<int64_t>(from_ms * 1e6);
            if (to_ms > 0) options.to = static_cast<int64_t>(to_ms * 1e6);
            options.max_devices = max_devices;
            options.width = width;
            return sim::ToSvg(self.trace, options);
          },
          py::kw_only(), py::arg("from_ms") = 0.0, py::arg("to_ms") = 0.0, py::arg("max_devices") = 32,
          py::arg("width") = 1200.0);

  py::class_<PyCluster>(module, "SimulatedCluster")
      .def(py::init(&Start), py::arg("options"), py::arg("timeout_s") = 60.0)
      .def(
          "set_cost",
          [](PyCluster& self, const std::string& pattern, double cost_us) {
            if (!(cost_us >= 0)) Raise(InvalidArgument("expected a cost of at least 0 us"));
            py::gil_scoped_release release;
            self.cluster->SetCost(pattern, cost_us);
          },
          py::arg("pattern"), py::arg("cost_us"))
      .def(
          "lose_host",
          [](PyCluster& self, uint32_t host, const std::string& reason) {
            Status status = [&] {
              py::gil_scoped_release release;
              return self.cluster->LoseHost(host, reason);
            }();
            Check(status);
          },
          py::arg("host"), py::arg("reason") = "it was ended on purpose")
      .def(
          "trace",
          [](PyCluster& self, bool clear) {
            py::gil_scoped_release release;
            return PyTrace{self.cluster->TakeTrace(clear), self.cluster->spec().devices_per_host};
          },
          py::arg("clear") = false)
      .def("stats", &Stats)
      .def("close", [](PyCluster& self) { self.cluster->Close(); }, py::call_guard<py::gil_scoped_release>());
}

}  // namespace pathways::bindings
