// Captured steps: recording what torch_xla does, and running it again.
#include <pybind11/stl.h>

#include <set>

#include "csrc/bindings/bindings.h"
#include "csrc/bindings/cells.h"
#include "csrc/bindings/guards.h"
#include "csrc/bindings/values.h"
#include "csrc/plugin/buffer.h"
#include "csrc/plugin/recorder.h"
#include "csrc/plugin/replay.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

using plugin::Value;
using ValuePtr = std::shared_ptr<Value>;

struct PyReplay {
  std::shared_ptr<plugin::Replay> replay;
};

// Values by number, and everything about them that an analysis needs.
class Describer {
 public:
  uint64_t Number(const ValuePtr& value) {
    const uint64_t token = plugin::PublishToken(value);
    if (seen_.insert(token).second) {
      py::dict entry;
      entry["dtype"] = std::string(DTypeName(value->type().dtype));
      entry["dims"] = value->type().dims;
      entry["device"] = value->device()->cluster_device;
      entry["scalar"] = value->scalar() ? py::object(py::int_(*value->scalar())) : py::none();
      entry["value"] = PyValue{value};
      values[py::int_(token)] = std::move(entry);
    }
    return token;
  }
  std::vector<uint64_t> Row(const std::vector<ValuePtr>& row) {
    std::vector<uint64_t> numbers;
    for (const ValuePtr& value : row) numbers.push_back(Number(value));
    return numbers;
  }
  py::dict values;

 private:
  std::set<uint64_t> seen_;
};

py::dict Describe(const plugin::Recording& recording) {
  Describer describer;
  py::list events;
  py::list functions;
  std::vector<const client::Function*> known;
  for (const plugin::RecordedEvent& event : recording) {
    py::dict entry;
    if (const auto* run = std::get_if<plugin::RecordedRun>(&event)) {
      const std::shared_ptr<client::Function> function = Unwrap(run->program->Registered());
      auto at = std::find(known.begin(), known.end(), function.get());
      entry["kind"] = "run";
      entry["function"] = at - known.begin();
      if (at == known.end()) {
        known.push_back(function.get());
        functions.append(PyFunction{function});
      }
      entry["what"] = run->program->What();
      entry["identity"] = function->id();
      std::vector<uint32_t> devices;
      for (const PJRT_Device* device : run->devices) devices.push_back(device->cluster_device);
      entry["devices"] = devices;
      entry["whole"] = !run->program->gang || run->devices.size() == run->program->devices.size();
      std::vector<std::vector<uint64_t>> arguments, results;
      for (const auto& row : run->arguments) arguments.push_back(describer.Row(row));
      for (const auto& row : run->results) results.push_back(describer.Row(row));
      entry["arguments"] = arguments;
      entry["results"] = results;
      entry["donated"] = run->donated;
    } else if (const auto* upload = std::get_if<plugin::RecordedUpload>(&event)) {
      entry["kind"] = "upload";
      entry["value"] = describer.Number(upload->value);
      entry["digest"] = upload->digest;
    } else if (const auto* copy = std::get_if<plugin::RecordedCopy>(&event)) {
      entry["kind"] = "copy";
      entry["source"] = describer.Number(copy->source);
      entry["result"] = describer.Number(copy->result);
    } else if (const auto* fetch = std::get_if<plugin::RecordedFetch>(&event)) {
      entry["kind"] = "fetch";
      entry["value"] = describer.Number(fetch->value);
    }
    events.append(std::move(entry));
  }
  py::dict result;
  result["events"] = std::move(events);
  result["values"] = std::move(describer.values);
  result["functions"] = std::move(functions);
  return result;
}

PyReplay MakeReplay(const PyProgram& program, const std::vector<py::tuple>& inputs,
                    const std::vector<std::pair<std::vector<size_t>, bool>>& outputs, size_t states, size_t feeds,
                    const PyValue& sample) {
  std::vector<plugin::ReplayInput> sources;
  for (const py::tuple& input : inputs) {
    plugin::ReplayInput source;
    const auto kind = input[0].cast<std::string>();
    if (kind == "constant") {
      source.kind = plugin::ReplayInput::Kind::kConstant;
      for (const py::handle& value : input[1]) source.constant.push_back(value.cast<const PyValue&>().value);
    } else {
      source.kind = kind == "state" ? plugin::ReplayInput::Kind::kState : plugin::ReplayInput::Kind::kFeed;
      source.index = input[1].cast<size_t>();
      source.may_donate = input[2].cast<bool>();
    }
    sources.push_back(std::move(source));
  }
  std::vector<plugin::ReplayOutput> places;
  for (const auto& [written, returned] : outputs) places.push_back({written, returned});
  return {Unwrap(plugin::Replay::Create(sample.value->client(), program.program, std::move(sources), std::move(places),
                                        states, feeds))};
}

std::vector<uint64_t> RunReplay(const PyReplay& self, const py::sequence& feeds) {
  std::vector<plugin::ReplayFeed> fed;
  std::vector<py::array> keep;
  for (const py::handle& feed : feeds) {
    plugin::ReplayFeed& item = fed.emplace_back();
    for (const py::handle& part : feed) {
      if (!py::isinstance<py::array>(part)) {
        item.values.push_back(part.cast<const PyValue&>().value);
        continue;
      }
      auto array = part.cast<py::array>();
      if (!(array.flags() & py::array::c_style)) Raise(InvalidArgument("a feed's array must be dense and row-major"));
      item.bytes.emplace_back(static_cast<const std::byte*>(array.data()), static_cast<size_t>(array.nbytes()));
      keep.push_back(std::move(array));
    }
  }
  Result<std::vector<ValuePtr>> returned = [&] {
    py::gil_scoped_release release;
    return self.replay->Run(fed);
  }();
  if (!returned.ok()) Raise(returned.status());
  std::vector<uint64_t> tokens;
  for (const ValuePtr& value : *returned) {
    plugin::ClaimToken(value);
    tokens.push_back(value->token());
  }
  return tokens;
}

}  // namespace

void BindCapture(py::module_& module) {
  BindGuards(module);
  py::class_<PyValue>(module, "DeviceValue")
      .def_property_readonly("dtype",
                             [](const PyValue& self) { return std::string(DTypeName(self.value->type().dtype)); })
      .def_property_readonly("dims", [](const PyValue& self) { return py::tuple(py::cast(self.value->type().dims)); })
      .def_property_readonly("device", [](const PyValue& self) { return self.value->device()->cluster_device; })
      .def_property_readonly("is_uploaded_scalar",
                             [](const PyValue& self) { return self.value->scalar().has_value(); });
  py::class_<PyCell>(module, "BufferCell")
      .def_property_readonly("alive", [](const PyCell& self) { return !self.cell->is_empty(); })
      .def_property_readonly("token",
                             [](const PyCell& self) {
                               const ValuePtr value = self.cell->value();
                               return value != nullptr ? plugin::PublishToken(value) : 0;
                             })
      .def_property_readonly("value",
                             [](const PyCell& self) -> py::object {
                               const ValuePtr value = self.cell->value();
                               return value != nullptr ? py::cast(PyValue{value}) : py::none();
                             })
      .def(
          "replace", [](const PyCell& self, const PyValue& value) { return self.cell->Replace(value.value); },
          py::arg("value"));
  module.def(
      "asked_cells",
      [](const py::function& ask) {
        plugin::CellWatch watch;
        ask();
        std::vector<PyCell> cells;
        for (const auto& cell : watch.cells()) cells.push_back({cell});
        return cells;
      },
      py::arg("ask"));
  module.def("start_recording", [] { Check(plugin::Recorder::Start()); });
  module.def("stop_recording", [] {
    const plugin::Recording recording = plugin::Recorder::Stop();
    return Describe(recording);
  });
  module.def(
      "digest",
      [](const py::array& array) {
        if (!(array.flags() & py::array::c_style)) Raise(InvalidArgument("the array must be dense and row-major"));
        return plugin::Digest(array.data(), static_cast<size_t>(array.nbytes()));
      },
      py::arg("array"));
  py::class_<PyReplay>(module, "Replay")
      .def(py::init(&MakeReplay), py::arg("program"), py::arg("inputs"), py::arg("outputs"), py::kw_only(),
           py::arg("states"), py::arg("feeds"), py::arg("sample"))
      .def(
          "bind",
          [](const PyReplay& self, size_t state, const std::vector<PyCell>& cells) {
            std::vector<std::shared_ptr<plugin::BufferCell>> raw;
            for (const PyCell& cell : cells) raw.push_back(cell.cell);
            Check(self.replay->Bind(state, raw));
          },
          py::arg("state"), py::arg("cells"))
      .def("run", &RunReplay, py::arg("feeds"));
}

}  // namespace pathways::bindings
