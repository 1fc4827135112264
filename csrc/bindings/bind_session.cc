// Session, Function and Buffer.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cmath>

#include "csrc/base/host_memory.h"
#include "csrc/bindings/bindings.h"
#include "csrc/pjrt/hlo.h"
#include "csrc_generated/version.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

using client::Session;
using client::Shard;

struct PyBuffer {
  Shard shard;
};
struct PyFunction {
  std::shared_ptr<client::Function> function;
};

// NumPy's type for an element type; types NumPy lacks come as their bits.
py::dtype NumpyType(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return py::dtype("bool");
    case DType::kS8:
      return py::dtype("int8");
    case DType::kS16:
      return py::dtype("int16");
    case DType::kS32:
      return py::dtype("int32");
    case DType::kS64:
      return py::dtype("int64");
    case DType::kU8:
      return py::dtype("uint8");
    case DType::kU16:
      return py::dtype("uint16");
    case DType::kU32:
      return py::dtype("uint32");
    case DType::kU64:
      return py::dtype("uint64");
    case DType::kF16:
      return py::dtype("float16");
    case DType::kF32:
      return py::dtype("float32");
    case DType::kF64:
      return py::dtype("float64");
    case DType::kC64:
      return py::dtype("complex64");
    case DType::kC128:
      return py::dtype("complex128");
    case DType::kBF16:
      return py::dtype("uint16");
    default:
      return py::dtype("uint8");
  }
}

DType FromNumpy(const py::dtype& dtype) {
  static constexpr DType kCandidates[] = {DType::kPred, DType::kS8,  DType::kS16, DType::kS32, DType::kS64,
                                          DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                                          DType::kF32,  DType::kF64, DType::kC64, DType::kC128};
  for (DType candidate : kCandidates) {
    if (dtype.equal(NumpyType(candidate))) return candidate;
  }
  Raise(InvalidArgument("expected an array of booleans, integers, floats or complex numbers, got " +
                        py::str(static_cast<py::object>(dtype)).cast<std::string>()));
}

std::shared_ptr<Session> Connect(const std::string& controller, const std::string& name, double timeout_s) {
  client::SessionOptions options;
  options.name = name;
  options.build = PTPATHWAYS_VERSION;
  options.controller = controller.empty() ? "(embedded)" : controller;
  options.connect_timeout = Milliseconds(timeout_s);
  if (controller.empty()) {
    options.link = [](client::Link::Sink sink, std::function<void(Status)>) {
      return OpenEmbeddedLink(std::move(sink));
    };
  } else {
    options.link = [controller](client::Link::Sink sink, std::function<void(Status)> lost) {
      return client::OpenZmqLink(controller, std::move(sink), std::move(lost));
    };
  }
  Result<std::shared_ptr<Session>> session = [&] {
    py::gil_scoped_release release;
    return Session::Connect(options);
  }();
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
    description["alive"] = host.alive != 0;
    description["first_device"] = host.first_device;
    description["devices"] = devices;
    hosts.append(description);
  }
  return hosts;
}

PyFunction Register(const std::shared_ptr<Session>& session, const py::bytes& module, const std::string& format,
                    const std::optional<std::vector<uint32_t>>& devices, const std::string& name,
                    const std::optional<py::bytes>& options) {
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
  if (format == "hlo" && spec.one_device) {
    pjrt::HloModuleInfo info = Unwrap(pjrt::ReadHloModule(spec.module));
    spec.outputs = info.results;
    spec.outputs_known = true;
    if (name.empty()) spec.name = info.name;
  }
  Result<std::shared_ptr<client::Function>> function = [&] {
    py::gil_scoped_release release;
    return session->Register(std::move(spec));
  }();
  return {Unwrap(std::move(function))};
}

PyBuffer Put(const std::shared_ptr<Session>& session, const py::object& value, uint32_t device) {
  py::array array = py::module_::import("numpy").attr("ascontiguousarray")(value);
  TensorType type;
  type.dtype = FromNumpy(array.dtype());
  // ascontiguousarray makes scalars one-dimensional; the value's own shape is what was meant.
  py::array shape_of = py::module_::import("numpy").attr("asarray")(value);
  for (py::ssize_t i = 0; i < shape_of.ndim(); ++i) type.dims.push_back(shape_of.shape(i));
  const void* data = array.data();
  Result<Shard> shard = [&] {
    py::gil_scoped_release release;
    return session->Put(device, type, data);
  }();
  return {Unwrap(std::move(shard))};
}

Result<client::RunResult> RunOnce(Session& session, const PyFunction& function, const std::vector<Shard>& arguments,
                                  uint32_t device) {
  client::RunArguments run;
  run.devices = {device};
  run.arguments.push_back(arguments);
  return session.Run(function.function, run);
}

std::vector<Shard> Shards(const std::vector<PyBuffer>& buffers) {
  std::vector<Shard> shards;
  shards.reserve(buffers.size());
  for (const PyBuffer& buffer : buffers) shards.push_back(buffer.shard);
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
  for (auto& output : result->outputs) outputs.push_back({Shard{std::move(output), 0}});
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
  if (status.ok()) status = session->Drain(std::chrono::minutes(5));
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

py::array FetchBuffer(const PyBuffer& buffer, double timeout_s) {
  const TensorType& type = buffer.shard.type();
  // The bytes land in memory of their own: after a timeout they may still arrive.
  auto landing = std::make_shared<HostMemory>(static_cast<size_t>(type.ByteSize()));
  std::shared_ptr<Event> event = [&] {
    py::gil_scoped_release release;
    return buffer.shard.buffer->session()->Fetch(buffer.shard, landing->data(), landing->size());
  }();
  event->OnReady([landing](const Status&) {});
  Check(WaitFor(event, timeout_s,
                "the value of a " + type.ToString() + " on device " + std::to_string(buffer.shard.device())));
  // A run that failed is the better explanation of a value that does not exist.
  std::vector<py::ssize_t> shape(type.dims.begin(), type.dims.end());
  py::capsule owner(new std::shared_ptr<HostMemory>(landing),
                    [](void* held) { delete static_cast<std::shared_ptr<HostMemory>*>(held); });
  return py::array(NumpyType(type.dtype), shape, landing->data(), owner);
}

}  // namespace

void BindSession(py::module_& module) {
  py::class_<PyBuffer>(module, "Buffer")
      .def_property_readonly("shape",
                             [](const PyBuffer& self) {
                               const std::vector<int64_t>& dims = self.shard.type().dims;
                               py::tuple shape(dims.size());
                               for (size_t i = 0; i < dims.size(); ++i) shape[i] = dims[i];
                               return shape;
                             })
      .def_property_readonly("dtype",
                             [](const PyBuffer& self) { return std::string(DTypeName(self.shard.type().dtype)); })
      .def_property_readonly("device", [](const PyBuffer& self) { return self.shard.device(); })
      .def("result", &FetchBuffer, py::arg("timeout_s"))
      .def(
          "wait",
          [](const PyBuffer& self, double timeout_s) {
            std::shared_ptr<Event> event = [&] {
              py::gil_scoped_release release;
              return self.shard.buffer->session()->Ready(self.shard);
            }();
            Check(WaitFor(
                event, timeout_s,
                "a " + self.shard.type().ToString() + " to be ready on device " + std::to_string(self.shard.device())));
          },
          py::arg("timeout_s"))
      .def(
          "copy_to",
          [](const PyBuffer& self, uint32_t device) {
            py::gil_scoped_release release;
            Result<Shard> copy = self.shard.buffer->session()->Copy(self.shard, device);
            py::gil_scoped_acquire acquire;
            return PyBuffer{Unwrap(std::move(copy))};
          },
          py::arg("device"));

  py::class_<PyFunction>(module, "Function").def_property_readonly("name", [](const PyFunction& self) {
    return self.function->spec().name;
  });

  py::class_<Session, std::shared_ptr<Session>>(module, "Session")
      .def_static("connect", &Connect, py::arg("controller") = "", py::arg("name") = "client",
                  py::arg("timeout_s") = 10.0)
      .def("make_current", [](const std::shared_ptr<Session>& self) { Session::SetCurrent(self); })
      .def("hosts", [](const std::shared_ptr<Session>& self) { return Hosts(*self); })
      .def_property_readonly("device_count", [](const std::shared_ptr<Session>& self) { return self->device_count(); })
      .def_property_readonly("cluster", [](const std::shared_ptr<Session>& self) { return self->cluster(); })
      .def("register", &Register, py::arg("module"), py::arg("format"), py::kw_only(), py::arg("devices") = py::none(),
           py::arg("name") = "", py::arg("options") = py::none())
      .def("put", &Put, py::arg("array"), py::arg("device"))
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
                status = self->Drain(std::min(left, std::chrono::milliseconds(100)));
              }
              if (status.code() != Code::kDeadlineExceeded || std::chrono::steady_clock::now() >= deadline) {
                return Check(status);
              }
              if (PyErr_CheckSignals() != 0) throw py::error_already_set();
            }
          },
          py::arg("timeout_s"))
      .def("wait_stats",
           [](const std::shared_ptr<Session>& self) {
             const client::WaitStats stats = self->wait_stats();
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
