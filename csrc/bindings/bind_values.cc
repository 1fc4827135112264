// Buffer: values of a session, as Python sees them.
#include <fcntl.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "csrc/bindings/bindings.h"
#include "csrc/bindings/values.h"

namespace py = pybind11;

namespace pathways::bindings {

using client::Shard;

namespace {

constexpr DType kAllTypes[] = {
    DType::kPred,   DType::kS8,       DType::kS16,           DType::kS32,        DType::kS64,
    DType::kU8,     DType::kU16,      DType::kU32,           DType::kU64,        DType::kF16,
    DType::kF32,    DType::kF64,      DType::kBF16,          DType::kC64,        DType::kC128,
    DType::kF8E5M2, DType::kF8E4M3FN, DType::kF8E4M3B11FNUZ, DType::kF8E5M2FNUZ, DType::kF8E4M3FNUZ};

DType FromNumpy(const py::dtype& dtype) {
  for (DType candidate : kAllTypes) {
    if (candidate == DType::kBF16 || candidate >= DType::kF8E5M2) continue;
    if (dtype.equal(NumpyType(candidate))) return candidate;
  }
  Raise(InvalidArgument("expected an array of booleans, integers, floats or complex numbers, got " +
                        py::str(static_cast<py::object>(dtype)).cast<std::string>()));
}

py::tuple Shape(const TensorType& type) {
  py::tuple shape(type.dims.size());
  for (size_t i = 0; i < type.dims.size(); ++i) shape[i] = type.dims[i];
  return shape;
}

}  // namespace

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

DType DTypeFromName(const std::string& name) {
  for (DType candidate : kAllTypes) {
    if (DTypeName(candidate) == name) return candidate;
  }
  Raise(InvalidArgument("expected an element type such as 'f32', 'bf16', 's64' or 'pred', got '" + name + "'"));
}

HostValue ToHostValue(const py::object& value, const std::string& dtype) {
  const py::module_ numpy = py::module_::import("numpy");
  HostValue result;
  // ascontiguousarray makes scalars one-dimensional; the value's own shape is what was meant.
  py::array own = numpy.attr("asarray")(value);
  result.array = numpy.attr("ascontiguousarray")(own);
  result.type.dtype = dtype.empty() ? FromNumpy(result.array.dtype()) : DTypeFromName(dtype);
  if (!dtype.empty() && result.array.itemsize() != DTypeBytes(result.type.dtype)) {
    Raise(InvalidArgument("expected elements of " + std::to_string(DTypeBytes(result.type.dtype)) + " bytes for " +
                          dtype + ", got " + std::to_string(result.array.itemsize())));
  }
  for (py::ssize_t i = 0; i < own.ndim(); ++i) result.type.dims.push_back(own.shape(i));
  return result;
}

Shard PyBuffer::only_shard() const {
  if (index) return {buffer, *index};
  if (buffer->devices().size() == 1) return {buffer, 0};
  Raise(InvalidArgument("expected a buffer of one shard, got one of " + std::to_string(buffer->devices().size()) +
                        "; name one with shard(i), or use fetch()"));
}

std::vector<Shard> PyBuffer::shards() const {
  if (index) return {{buffer, *index}};
  std::vector<Shard> all;
  for (uint32_t i = 0; i < buffer->devices().size(); ++i) all.push_back({buffer, i});
  return all;
}

std::vector<py::array> FetchShards(const std::vector<Shard>& shards, double timeout_s) {
  // The bytes land in memory of their own: after a timeout they may still arrive.
  std::vector<std::shared_ptr<HostMemory>> landings;
  std::vector<std::shared_ptr<Event>> events;
  {
    py::gil_scoped_release release;
    for (const Shard& shard : shards) {
      auto landing = std::make_shared<HostMemory>(static_cast<size_t>(shard.type().ByteSize()));
      events.push_back(shard.buffer->session()->transfers().Fetch(shard, landing->data(), landing->size()));
      events.back()->OnReady([landing](const Status&) {});
      landings.push_back(std::move(landing));
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + Milliseconds(timeout_s);
  std::vector<py::array> arrays;
  for (size_t i = 0; i < shards.size(); ++i) {
    const TensorType& type = shards[i].type();
    const double left = std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    Check(WaitFor(events[i], std::max(left, 0.0),
                  "the value of a " + type.ToString() + " on device " + std::to_string(shards[i].device())));
    std::vector<py::ssize_t> shape(type.dims.begin(), type.dims.end());
    py::capsule owner(new std::shared_ptr<HostMemory>(landings[i]),
                      [](void* held) { delete static_cast<std::shared_ptr<HostMemory>*>(held); });
    arrays.emplace_back(NumpyType(type.dtype), shape, landings[i]->data(), owner);
  }
  return arrays;
}

std::shared_ptr<Event> ReadyEvent(const PyBuffer& buffer) {
  if (buffer.ready) return buffer.ready;
  const std::vector<Shard> shards = buffer.shards();
  py::gil_scoped_release release;
  if (buffer.buffer->ready() || shards.size() == 1) {
    buffer.ready = buffer.buffer->session()->transfers().Ready(shards[0]);
    return buffer.ready;
  }
  auto all = Event::Make();
  auto left = std::make_shared<std::atomic<size_t>>(shards.size());
  for (const Shard& shard : shards) {
    buffer.buffer->session()->transfers().Ready(shard)->OnReady([all, left](const Status& status) {
      if (!status.ok()) {
        all->Set(status);
      } else if (left->fetch_sub(1) == 1) {
        all->Set(OkStatus());
      }
    });
  }
  buffer.ready = all;
  return all;
}

void BindValues(py::module_& module) {
  py::class_<PyBuffer>(module, "Buffer")
      .def_property_readonly("shape", [](const PyBuffer& self) { return Shape(self.buffer->shard_type()); })
      .def_property_readonly(
          "dtype", [](const PyBuffer& self) { return std::string(DTypeName(self.buffer->shard_type().dtype)); })
      .def_property_readonly("device", [](const PyBuffer& self) { return self.only_shard().device(); })
      .def_property_readonly("devices",
                             [](const PyBuffer& self) {
                               std::vector<uint32_t> devices;
                               for (const Shard& shard : self.shards()) devices.push_back(shard.device());
                               return devices;
                             })
      .def_property_readonly("shard_count", [](const PyBuffer& self) { return self.shards().size(); })
      .def_property_readonly("given_up", [](const PyBuffer& self) { return self.buffer->given_up(); })
      .def(
          "shard",
          [](const PyBuffer& self, uint32_t index) {
            const std::vector<Shard> shards = self.shards();
            if (index >= shards.size()) {
              Raise(InvalidArgument("expected a shard below " + std::to_string(shards.size()) + ", got " +
                                    std::to_string(index)));
            }
            return PyBuffer{shards[index].buffer, shards[index].index};
          },
          py::arg("index"))
      .def(
          "result",
          [](const PyBuffer& self, double timeout_s) { return FetchShards({self.only_shard()}, timeout_s)[0]; },
          py::arg("timeout_s"))
      .def(
          "fetch", [](const PyBuffer& self, double timeout_s) { return FetchShards(self.shards(), timeout_s); },
          py::arg("timeout_s"))
      .def("done", [](const PyBuffer& self) { return ReadyEvent(self)->TryGet().has_value(); })
      .def("error",
           [](const PyBuffer& self) -> std::optional<std::string> {
             const std::optional<Status> status = ReadyEvent(self)->TryGet();
             if (!status || status->ok()) return std::nullopt;
             return std::string(status->message());
           })
      .def(
          "wait",
          [](const PyBuffer& self, double timeout_s) {
            Check(WaitFor(ReadyEvent(self), timeout_s,
                          "a " + self.buffer->shard_type().ToString() + " to be ready on device " +
                              std::to_string(self.shards()[0].device())));
          },
          py::arg("timeout_s"))
      .def(
          "notify",
          [](const PyBuffer& self, int descriptor) {
            // A descriptor of our own: the caller may have closed its one by then, and the number may be another's.
            const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
            if (own < 0) {
              Raise(InvalidArgument("expected the descriptor of an eventfd, got " + std::to_string(descriptor) + ": " +
                                    std::strerror(errno)));
            }
            ReadyEvent(self)->OnReady([own](const Status&) {
              const uint64_t one = 1;
              [[maybe_unused]] const ssize_t written = ::write(own, &one, sizeof one);
              ::close(own);
            });
          },
          py::arg("descriptor"))
      .def(
          "copy_to",
          [](const PyBuffer& self, uint32_t device) {
            const Shard shard = self.only_shard();
            Result<Shard> copy = [&] {
              py::gil_scoped_release release;
              return shard.buffer->session()->buffers().Copy(shard, device);
            }();
            return PyBuffer{Unwrap(std::move(copy)).buffer, std::nullopt};
          },
          py::arg("device"));
  py::class_<PyFunction>(module, "Function")
      .def_property_readonly("name", [](const PyFunction& self) { return self.function->spec().name; })
      .def_property_readonly("source", [](const PyFunction& self) { return self.function->spec().source; })
      .def_property_readonly("format", [](const PyFunction& self) { return self.function->spec().format; })
      .def_property_readonly("module", [](const PyFunction& self) { return py::bytes(self.function->spec().module); });
}

}  // namespace pathways::bindings
