// Session, Function and Buffer.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "csrc/base/clock.h"
#include "csrc/base/host_memory.h"
#include "csrc/base/waits.h"
#include "csrc/bindings/bindings.h"
#include "csrc/bindings/values.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/hlo/hlo.h"
#include "csrc_generated/version.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

using client::Session;
using client::Shard;

std::shared_ptr<Session> Connect(const std::string& controller, const std::string& name, double timeout_s,
                                 double weight, int32_t priority, const std::string& token) {
  client::SessionOptions options;
  options.name = name;
  options.build = PTPATHWAYS_VERSION;
  options.controller = controller.empty() ? "(embedded)" : controller;
  options.connect_timeout = Milliseconds(timeout_s);
  options.transfer_timeout = Unwrap(dataplane::TransferTimeoutOf(std::getenv("PTPATHWAYS_TRANSFER_TIMEOUT_S")));
  options.weight = weight;
  options.priority = priority;
  options.keys = Unwrap(transport::KeysOfToken(token, transport::Role::kClient));
  if (controller.empty()) {
    options.link = [](client::Link::Sink sink, const std::function<void(Status)>&) {
      return OpenEmbeddedLink(std::move(sink));
    };
  } else {
    options.link = [controller, curve = options.keys.Curve(transport::Role::kController)](
                       client::Link::Sink sink, std::function<void(Status)> lost) {
      return client::OpenZmqLink(controller, curve, std::move(sink), std::move(lost));
    };
  }
  std::optional<py::error_already_set> signal;  // what a handler of Python's raised meanwhile: KeyboardInterrupt
  const auto still_wanted = [&signal] {
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) return OkStatus();
    signal.emplace();
    return Cancelled("a signal came");
  };
  Result<std::shared_ptr<Session>> session = [&] {
    py::gil_scoped_release release;
    return Session::Connect(options, still_wanted);
  }();
  if (signal) throw *std::move(signal);
  return Unwrap(std::move(session));
}

py::list Hosts(const Session& session) {
  py::list hosts;
  for (const wire::HostDescription& host : session.hosts()) {
    py::list devices;
    for (const wire::DeviceDescription& device : host.devices) {
      py::dict description;
      description["local_ordinal"] = device.local_ordinal;
      description["kind"] = device.kind;
      description["memory_limit_bytes"] = device.memory_limit_bytes;
      description["plugin_id"] = device.plugin_id;
      devices.append(description);
    }
    py::dict description;
    description["host"] = host.host;
    description["name"] = host.name;
    description["machine"] = host.machine;
    description["data_endpoint"] = host.data_endpoint;
    description["platform"] = host.platform;
    description["platform_version"] = host.platform_version;
    description["island"] = host.island;
    description["pid"] = host.pid;
    description["alive"] = host.alive != wire::kHostLost;
    description["first_device"] = host.first_device;
    description["devices"] = devices;
    hosts.append(description);
  }
  return hosts;
}

PyFunction Register(const std::shared_ptr<Session>& session, const py::bytes& module, const std::string& format,
                    const std::optional<std::vector<uint32_t>>& devices, const std::string& name,
                    const std::optional<py::bytes>& options, const std::string& source,
                    const std::optional<std::vector<py::tuple>>& outputs) {
  client::FunctionSpec spec;
  spec.name = name.empty() ? "function" : name;
  spec.format = format;
  spec.module = std::string(module);
  if (options) spec.options = std::string(*options);
  spec.one_device = !devices;
  if (devices) {
    spec.devices = *devices;
    spec.partitions = static_cast<uint32_t>(devices->size());
  }
  spec.source = source;
  if (outputs) {
    for (const py::tuple& type : *outputs) {
      spec.outputs.push_back({DTypeFromName(type[0].cast<std::string>()), type[1].cast<std::vector<int64_t>>()});
    }
    spec.outputs_known = true;
  } else if (format == "hlo" && spec.one_device) {
    hlo::HloModuleInfo info = Unwrap(hlo::ReadHloModule(spec.module));
    spec.outputs = info.results;
    spec.outputs_known = true;
    if (name.empty()) spec.name = info.name;
  }
  Result<std::shared_ptr<client::Function>> function = [&] {
    py::gil_scoped_release release;
    return session->functions().Register(std::move(spec));
  }();
  return {Unwrap(std::move(function))};
}

PyBuffer Put(const std::shared_ptr<Session>& session, const py::object& value, uint32_t device,
             const std::string& dtype) {
  const HostValue host = ToHostValue(value, dtype);
  const void* data = host.array.data();
  Result<Shard> shard = [&] {
    py::gil_scoped_release release;
    return session->buffers().Put(device, host.type, data);
  }();
  return {Unwrap(std::move(shard)).buffer, std::nullopt};
}

Result<client::RunResult> RunOnce(Session& session, const PyFunction& function, const std::vector<Shard>& arguments,
                                  uint32_t device) {
  return session.runs().Run(function.function, {.devices = {&device, 1}, .arguments = {&arguments, 1}});
}

std::vector<Shard> Shards(const std::vector<PyBuffer>& buffers) {
  std::vector<Shard> shards;
  shards.reserve(buffers.size());
  for (const PyBuffer& buffer : buffers) shards.push_back(buffer.only_shard());
  return shards;
}

std::vector<PyBuffer> Run(const std::shared_ptr<Session>& session, const PyFunction& function,
                          const std::vector<PyBuffer>& arguments, uint32_t device) {
  const std::vector<Shard> shards = Shards(arguments);
  Result<client::RunResult> result = [&] {
    py::gil_scoped_release release;
    return RunOnce(*session, function, shards, device);
  }();
  if (!result.ok()) Raise(result.status());
  std::vector<PyBuffer> outputs;
  outputs.reserve(result->outputs.size());
  for (auto& output : result->outputs) outputs.push_back({std::move(output), std::nullopt});
  return outputs;
}

double BenchPipelined(const std::shared_ptr<Session>& session, const PyFunction& function,
                      const std::vector<PyBuffer>& arguments, uint32_t device, int count) {
  const std::vector<Shard> shards = Shards(arguments);
  py::gil_scoped_release release;
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<Event> last;
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    auto result = RunOnce(*session, function, shards, device);
    status = result.status();
    if (result.ok()) last = result->done;
  }
  if (status.ok()) status = session->runs().Drain(std::chrono::minutes(5));
  if (status.ok() && last) status = last->Wait();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  py::gil_scoped_acquire acquire;
  Check(status);
  return seconds;
}

std::vector<double> BenchRoundTrip(const std::shared_ptr<Session>& session, const PyFunction& function,
                                   const std::vector<PyBuffer>& arguments, uint32_t device, int count) {
  const std::vector<Shard> shards = Shards(arguments);
  std::vector<double> seconds;
  seconds.reserve(static_cast<size_t>(count));
  py::gil_scoped_release release;
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    auto result = RunOnce(*session, function, shards, device);
    status = result.ok() ? result->done->Wait() : result.status();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  py::gil_scoped_acquire acquire;
  Check(status);
  return seconds;
}

double SecondsSince(int64_t then_ms) { return static_cast<double>(NowMs() - then_ms) * 1e-3; }

py::list PendingItems(const std::shared_ptr<Session>& session) {
  py::list out;
  for (client::PendingItem& item : session->Pending()) {
    out.append(py::make_tuple(item.sort, item.what, item.hosts, SecondsSince(item.since_ms)));
  }
  return out;
}

py::list Activity(const std::shared_ptr<Session>& session, uint32_t device, double timeout_s) {
  auto answer = [&] {
    py::gil_scoped_release release;
    return session->queries().Ask(wire::QueryKind::kActivity, 0, device, Milliseconds(timeout_s));
  }();
  py::list out;
  for (const wire::Property& doing : Unwrap(std::move(answer)).properties) {
    out.append(py::make_tuple(doing.name, doing.text, static_cast<double>(doing.integer) * 1e-3));
  }
  return out;
}

py::list WaitsUnderWay() {
  py::list out;
  for (const waits::Wait& wait : waits::UnderWay()) {
    out.append(py::make_tuple(wait.thread, wait.what, SecondsSince(wait.since_ms)));
  }
  return out;
}

}  // namespace

void BindSession(py::module_& module) {
  BindValues(module);
  module.def("waits_under_way", &WaitsUnderWay);
  py::class_<Session, std::shared_ptr<Session>> session(module, "Session");
  BindPrograms(session, module);
  session
      .def_static("connect", &Connect, py::arg("controller") = "", py::arg("name") = "client",
                  py::arg("timeout_s") = 10.0, py::arg("weight") = 1.0, py::arg("priority") = 0, py::arg("token") = "")
      .def("make_current", [](const std::shared_ptr<Session>& self) { Session::SetCurrent(self); })
      .def("hosts", [](const std::shared_ptr<Session>& self) { return Hosts(*self); })
      .def_property_readonly("device_count", [](const std::shared_ptr<Session>& self) { return self->device_count(); })
      .def_property_readonly("client_index", [](const std::shared_ptr<Session>& self) { return self->client_index(); })
      .def_property_readonly("cluster", [](const std::shared_ptr<Session>& self) { return self->cluster(); })
      .def("register", &Register, py::arg("module"), py::arg("format"), py::kw_only(), py::arg("devices") = py::none(),
           py::arg("name") = "", py::arg("options") = py::none(), py::arg("source") = "",
           py::arg("outputs") = py::none())
      .def("put", &Put, py::arg("array"), py::arg("device"), py::kw_only(), py::arg("dtype") = "")
      .def("run", &Run, py::arg("fn"), py::arg("args"), py::arg("device"))
      .def("bench_pipelined", &BenchPipelined, py::arg("fn"), py::arg("args"), py::arg("device"), py::arg("count"))
      .def("bench_round_trip", &BenchRoundTrip, py::arg("fn"), py::arg("args"), py::arg("device"), py::arg("count"))
      .def(
          "drain",
          [](const std::shared_ptr<Session>& self, double timeout_s) {
            const auto deadline = std::chrono::steady_clock::now() + Milliseconds(timeout_s);
            for (;;) {
              Status status;
              {
                py::gil_scoped_release release;
                const auto left =
                    std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
                status = self->runs().Drain(std::min(left, std::chrono::milliseconds(100)));
              }
              if (status.code() != Code::kDeadlineExceeded || std::chrono::steady_clock::now() >= deadline) {
                return Check(status);
              }
              if (PyErr_CheckSignals() != 0) throw py::error_already_set();
            }
          },
          py::arg("timeout_s"))
      .def("take_failure", [](const std::shared_ptr<Session>& self) { Check(self->runs().TakeFailure()); })
      .def(
          "status_json",
          [](const std::shared_ptr<Session>& self, double timeout_s) {
            Result<std::string> status = [&] {
              py::gil_scoped_release release;
              return self->queries().ClusterStatus(Milliseconds(timeout_s));
            }();
            return Unwrap(std::move(status));
          },
          py::arg("timeout_s"))
      .def("silent_hosts", [](const std::shared_ptr<Session>& self) { return self->SilentHosts(); })
      .def("sends", [](const std::shared_ptr<Session>& self) { return self->Sends(); })
      .def("pending", &PendingItems)
      .def("activity", &Activity, py::arg("device"), py::arg("timeout_s"))
      .def("wait_stats",
           [](const std::shared_ptr<Session>& self) {
             const client::WaitStats stats = self->waiting().stats();
             py::dict out;
             out["waits"] = stats.waits;
             out["seconds"] = stats.seconds;
             return out;
           })
      .def("transfer_stats",
           [](const std::shared_ptr<Session>& self) {
             const client::TransferStats stats = self->transfer_stats();
             py::dict out;
             out["bytes_uploaded"] = stats.bytes_uploaded;
             out["bytes_fetched"] = stats.bytes_fetched;
             out["runs"] = stats.runs;
             out["copies"] = stats.copies;
             return out;
           })
      .def(
          "close",
          [](const std::shared_ptr<Session>& self, const std::string& reason) {
            py::gil_scoped_release release;
            self->Close(reason);
          },
          py::arg("reason") = "the client closed its session")
      .def("__enter__", [](std::shared_ptr<Session> self) { return self; })
      .def("__exit__", [](const std::shared_ptr<Session>& self, const py::args&) {
        py::gil_scoped_release release;
        self->Close("the client left its session");
      });
}

}  // namespace pathways::bindings
