// Files of tensors: saving values that buffers hold, loading others in their place.
#include <pybind11/stl.h>

#include "csrc/base/crc32c.h"
#include "csrc/bindings/bindings.h"
#include "csrc/bindings/cells.h"
#include "csrc/values/files.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

using Dims = std::vector<int64_t>;
using BoxTuple = std::tuple<uint32_t, uint64_t, Dims, Dims, Dims, Dims>;
using Boxes = std::vector<BoxTuple>;
using ShardBoxes = std::vector<std::tuple<PyValue, uint32_t, Boxes>>;  // a value, which of its shards, and boxes

struct PyFileOperation {
  client::FileOperation operation;
};

std::vector<wire::FileBox> ToBoxes(const Boxes& boxes) {
  std::vector<wire::FileBox> result;
  result.reserve(boxes.size());
  for (const auto& [file, offset, dims, at, start, size] : boxes)
    result.push_back({file, offset, dims, at, start, size});
  return result;
}

PyFileOperation SaveValues(uint32_t host, const std::string& path, uint64_t file_bytes, bool create,
                           const py::bytes& header, const ShardBoxes& values) {
  if (values.empty()) Raise(InvalidArgument("expected at least one value to save, got none"));
  wire::Save save;
  save.host = host;
  save.path = path;
  save.file_bytes = file_bytes;
  save.create = create;
  save.header = header;
  std::vector<values::SavedValue> saved;
  saved.reserve(values.size());
  for (const auto& [value, shard, boxes] : values) saved.push_back({value.value, shard, ToBoxes(boxes)});
  py::gil_scoped_release release;
  return {values::SaveValues(std::move(save), std::move(saved))};
}

PyFileOperation LoadValues(const std::shared_ptr<client::Session>& session, uint32_t host,
                           const std::vector<std::tuple<std::string, uint64_t, std::optional<uint32_t>>>& files,
                           const ShardBoxes& values) {
  wire::Load load;
  load.host = host;
  for (const auto& [path, bytes, crc32c] : files)
    load.files.push_back({path, bytes, crc32c.has_value(), crc32c.value_or(0)});
  for (const auto& [value, shard, boxes] : values) {
    load.shards.push_back(Unwrap(values::LoadOf(*value.value, shard, ToBoxes(boxes))));
  }
  py::gil_scoped_release release;
  return {session->files().Load(std::move(load))};
}

}  // namespace

void BindFiles(py::module_& module) {
  module.def(
      "crc32c",
      [](const py::buffer& bytes, uint32_t before) {
        const py::buffer_info info = bytes.request();
        const auto size = static_cast<size_t>(info.size * info.itemsize);
        py::gil_scoped_release release;
        return Crc32c(info.ptr, size, before);
      },
      py::arg("bytes"), py::arg("before") = 0);
  py::class_<PyFileOperation>(module, "FileOperation")
      .def(
          "wait",
          [](const PyFileOperation& self, double timeout_s, const std::string& what) {
            Check(WaitFor(self.operation.done, timeout_s, what));
          },
          py::arg("timeout_s"), py::arg("what") = "an answer of a host that reads or writes files")
      .def("done", [](const PyFileOperation& self) { return self.operation.done->TryGet().has_value(); })
      .def_property_readonly("bytes", [](const PyFileOperation& self) { return self.operation.answer->bytes; })
      .def_property_readonly("crc32c", [](const PyFileOperation& self) { return self.operation.answer->crc32c; })
      .def_property_readonly("seconds", [](const PyFileOperation& self) {
        return static_cast<double>(self.operation.answer->elapsed_us) * 1e-6;
      });
  module.def("save_values", &SaveValues, py::kw_only(), py::arg("host"), py::arg("path"), py::arg("file_bytes"),
             py::arg("create"), py::arg("header"), py::arg("values"));
  module.def("load_values", &LoadValues, py::arg("session"), py::kw_only(), py::arg("host"), py::arg("files"),
             py::arg("values"));
  module.def(
      "announce_values",
      [](const std::vector<PyValue>& like) {
        Result<std::vector<PyValue>> made = [&]() -> Result<std::vector<PyValue>> {
          py::gil_scoped_release release;
          std::vector<PyValue> values;
          for (const PyValue& each : like) {
            PW_ASSIGN_OR_RETURN(values::ValuePtr value, values::AnnounceValue(*each.value));
            values.push_back({std::move(value)});
          }
          return values;
        }();
        return Unwrap(std::move(made));
      },
      py::arg("like"));
}

}  // namespace pathways::bindings
