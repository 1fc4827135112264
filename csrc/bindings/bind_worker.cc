// run_worker and the process-wide functions.
#include <pybind11/stl.h>

#include <cstdlib>

#include "csrc/base/log.h"
#include "csrc/bindings/bindings.h"
#include "csrc/transport/shm.h"
#include "csrc/transport/zmq_api.h"
#include "csrc/worker/engine.h"
#include "csrc_generated/version.h"

namespace py = pybind11;

namespace pathways::bindings {

pjrt::NamedValues CreateOptions(const py::dict& options) {
  pjrt::NamedValues values;
  for (const auto& [key, value] : options) {
    const std::string name = key.cast<std::string>();
    if (py::isinstance<py::bool_>(value)) {
      values[name] = value.cast<bool>();
    } else if (py::isinstance<py::int_>(value)) {
      values[name] = value.cast<int64_t>();
    } else if (py::isinstance<py::float_>(value)) {
      values[name] = value.cast<float>();
    } else if (py::isinstance<py::str>(value)) {
      values[name] = value.cast<std::string>();
    } else {
      values[name] = value.cast<std::vector<int64_t>>();
    }
  }
  return values;
}

namespace {

int RunWorker(const py::dict& options) {
  worker::EngineOptions engine_options;
  engine_options.build = PTPATHWAYS_VERSION;
  engine_options.controller = options["controller"].cast<std::string>();
  engine_options.name = options["name"].cast<std::string>();
  engine_options.plugin = options["plugin"].cast<std::string>();
  engine_options.platform = options["platform"].cast<std::string>();
  engine_options.island = Option<std::string>(options, "island", "");
  if (options.contains("create_options")) engine_options.create_options = CreateOptions(options["create_options"]);
  engine_options.island_hosts = static_cast<uint32_t>(Option<int64_t>(options, "island_hosts", 0));
  engine_options.island_timeout = Milliseconds(Option<double>(options, "island_timeout_s", 60.0));
  engine_options.node_id_option = Option<std::string>(options, "node_id_option", "node_id");
  engine_options.num_nodes_option = Option<std::string>(options, "num_nodes_option", "num_nodes");
  engine_options.memory_limit_bytes = Option<int64_t>(options, "memory_limit_bytes", 0);
  engine_options.parent_pid = Option<int64_t>(options, "parent_pid", 0);
  engine_options.connect_timeout = Milliseconds(Option<double>(options, "connect_timeout_s", 30.0));
  engine_options.transfer_timeout = Unwrap(dataplane::TransferTimeoutOf(std::getenv("PTPATHWAYS_TRANSFER_TIMEOUT_S")));
  if (const char* const text = std::getenv("PTPATHWAYS_MAX_MAPPINGS")) {
    char* end = nullptr;
    engine_options.max_mappings = std::strtoull(text, &end, 10);
    if (*text == '-' || *end != '\0' || engine_options.max_mappings < 1000) {
      Raise(
          InvalidArgument("PTPATHWAYS_MAX_MAPPINGS must be a number of at least 1000, got '" + Printable(text) + "'"));
    }
  }
  const std::string runtime_dir = Option<std::string>(options, "runtime_dir", "");
  engine_options.python = Option<std::string>(options, "python", "");
  engine_options.pipeline_script = Option<std::string>(options, "pipeline_script", "");
  engine_options.root = Option<std::string>(options, "root", "");
  engine_options.cache_dir = Option<std::string>(options, "cache_dir", "");
  engine_options.kernels = Option<std::string>(options, "kernels", "");
  engine_options.scratch_dir = runtime_dir;  // removed with the cluster, also after a crash
  engine_options.data_endpoint = Option<std::string>(options, "data_endpoint", "");
  if (engine_options.data_endpoint.empty()) {
    engine_options.data_endpoint =
        runtime_dir.empty() ? "tcp://127.0.0.1:*" : "ipc://" + runtime_dir + "/" + engine_options.name + ".data";
  }
  engine_options.advertise = Option<std::string>(options, "advertise", "");
  // Never on the command line, which everybody on the machine may read.
  const char* token = std::getenv("PTPATHWAYS_TOKEN");
  engine_options.keys = Unwrap(transport::KeysOfToken(token == nullptr ? "" : token, transport::Role::kWorker));
  ::unsetenv("PTPATHWAYS_TOKEN");
  logging::SetLevel(logging::LevelOf(Option<std::string>(options, "log_level", "warning")));
  py::gil_scoped_release release;
  // Leaked: the plugin's own threads may outlive the engine's work, and the process ends right after.
  auto* engine = new worker::Engine(std::move(engine_options));
  return engine->Run();
}

}  // namespace

void BindWorker(py::module_& module) {
  module.def("load_zmq", [](const std::string& path) { Check(transport::LoadZmq(path)); }, py::arg("path"));
  module.def("machine_token", &transport::MachineToken);
  module.def(
      "clean_up_shared_memory", [](const std::string& cluster) { return Unwrap(transport::CleanUp(cluster)); },
      py::arg("cluster"));
  module.def("clean_up_dead_shared_memory", [] { return Unwrap(transport::CleanUpDead()); });
  module.def(
      "keys_of_role",
      [](const std::string& token, const std::string& role) {
        return Unwrap(
            transport::KeysOfRole(token, role == "worker" ? transport::Role::kWorker : transport::Role::kClient));
      },
      py::arg("token"), py::arg("role"));
  module.def("run_worker", &RunWorker, py::arg("options"));
}

}  // namespace pathways::bindings
