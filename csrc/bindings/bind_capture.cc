// Captured steps: recording what torch_xla does, and running it again.
#include <pybind11/stl.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "csrc/bindings/bindings.h"
#include "csrc/bindings/cells.h"
#include "csrc/bindings/guards.h"
#include "csrc/bindings/tilings.h"
#include "csrc/bindings/values.h"
#include "csrc/capture/recorder.h"
#include "csrc/capture/replay.h"
#include "csrc/plugin/cell_watch.h"
#include "csrc/values/buffer.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

using values::Value;
using values::ValuePtr;

struct PyReplay {
  std::shared_ptr<capture::Replay> replay;
};

// A thread's profile function, taken down. Of one that is written in C, as cProfile's is, sys.getprofile has only the
// object, which sys.setprofile cannot put up again.
class HeldProfiler {
 public:
  HeldProfiler()
      : function_(PyThreadState_Get()->c_profilefunc),
        of_(py::reinterpret_borrow<py::object>(PyThreadState_Get()->c_profileobj)) {
    PyEval_SetProfile(nullptr, nullptr);
  }
  void PutBack() const { PyEval_SetProfile(function_, of_.ptr()); }

 private:
  const Py_tracefunc function_;
  const py::object of_;  // null without a profiler
};

py::tuple Tuple(const auto& numbers) {
  py::tuple made(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) made[i] = numbers[i];
  return made;
}

int DeviceOf(const Value& value) { return value.device()->description.id; }

py::list BoxesOf(const Value& value) {
  py::list boxes;
  const TensorType& type = value.type();
  const TilingPtr& tiling = value.tiling();
  if (tiling == nullptr) boxes.append(py::make_tuple(Tuple(std::vector<int64_t>(type.dims.size())), Tuple(type.dims)));
  for (size_t i = 0; tiling != nullptr && i < tiling->device_count(); ++i) {
    const Tiling::Box box = tiling->BoxOf(type, tiling->tiles()[i]);
    boxes.append(py::make_tuple(Tuple(box.start), Tuple(box.size)));
  }
  return boxes;
}

PyBuffer BufferOf(const PyValue& value) {
  const client::ProgramArgument argument = Unwrap(value.value->argument());
  if (argument.buffer != nullptr) return {argument.buffer, std::nullopt};
  return {argument.shards[0].buffer, argument.shards[0].index};
}

// Values by number, and everything about them that an analysis needs.
class Describer {
 public:
  uint64_t Number(const ValuePtr& value) {
    const uint64_t token = values::PublishToken(value);
    if (seen_.insert(token).second) {
      py::dict entry;
      entry["dtype"] = std::string(DTypeName(value->type().dtype));
      entry["dims"] = Tuple(value->type().dims);
      entry["shard_dims"] = Tuple(value->shard_type().dims);
      entry["device"] = DeviceOf(*value);
      entry["devices"] = Tuple(value->devices());
      entry["tiling"] = TilingToPython(value->tiling());
      entry["scalar"] = value->scalar() ? py::object(py::int_(*value->scalar())) : py::none();
      entry["value"] = PyValue{value};
      values[py::int_(token)] = std::move(entry);
    }
    return token;
  }
  py::list Numbers(const std::vector<ValuePtr>& values) {
    py::list numbers;
    for (const ValuePtr& value : values) numbers.append(Number(value));
    return numbers;
  }
  py::dict values;

 private:
  std::set<uint64_t> seen_;
};

py::dict Describe(const capture::Recording& recording) {
  Describer describer;
  py::list events;
  py::list functions;
  std::vector<const client::Function*> known;
  for (const capture::RecordedEvent& event : recording) {
    py::dict entry;
    if (const auto* run = std::get_if<capture::RecordedRun>(&event)) {
      auto at = std::find(known.begin(), known.end(), run->function.get());
      entry["kind"] = "run";
      entry["function"] = at - known.begin();
      if (at == known.end()) {
        known.push_back(run->function.get());
        functions.append(PyFunction{run->function});
      }
      entry["what"] = run->program->What();
      entry["identity"] = run->function->id();
      entry["device"] = run->device->description.id;
      entry["arguments"] = describer.Numbers(run->arguments);
      entry["results"] = describer.Numbers(run->results);
      entry["donated"] = run->donated;
      entry["passed"] = run->program->passed;
    } else if (const auto* gang = std::get_if<capture::RecordedGang>(&event)) {
      entry["kind"] = "gang";
      entry["what"] = gang->what;
    } else if (const auto* upload = std::get_if<capture::RecordedUpload>(&event)) {
      entry["kind"] = "upload";
      entry["value"] = describer.Number(upload->value);
      entry["digest"] = upload->digest;
    } else if (const auto* copy = std::get_if<capture::RecordedCopy>(&event)) {
      entry["kind"] = "copy";
      entry["source"] = describer.Number(copy->source);
      entry["result"] = describer.Number(copy->result);
    } else if (const auto* fetch = std::get_if<capture::RecordedFetch>(&event)) {
      entry["kind"] = "fetch";
      entry["value"] = describer.Number(fetch->value);
      entry["own"] = fetch->own;
      entry["source"] = fetch->source;
    }
    events.append(std::move(entry));
  }
  py::dict result;
  result["events"] = std::move(events);
  result["values"] = std::move(describer.values);
  result["functions"] = std::move(functions);
  return result;
}

PyReplay MakeReplay(const PyProgram& program, const std::vector<std::tuple<std::string, size_t, bool, PyValue>>& inputs,
                    const std::vector<std::tuple<std::vector<size_t>, bool, PyValue>>& outputs, size_t states,
                    size_t feeds) {
  using Kind = capture::ReplayInput::Kind;
  std::vector<capture::ReplayInput> sources;
  for (const auto& [kind, index, may_donate, like] : inputs) {
    const Kind from = kind == "constant" ? Kind::kConstant : kind == "state" ? Kind::kState : Kind::kFeed;
    sources.push_back({from, index, may_donate, like.value});
  }
  std::vector<capture::ReplayOutput> places;
  for (const auto& [written, returned, like] : outputs) places.push_back({written, returned, like.value});
  return {Unwrap(capture::Replay::Create(program.program, std::move(sources), std::move(places), states, feeds))};
}

std::vector<uint64_t> RunReplay(const PyReplay& self, const py::sequence& feeds) {
  std::vector<capture::ReplayFeed> fed;
  std::vector<py::array> keep;
  for (const py::handle& feed : feeds) {
    capture::ReplayFeed& item = fed.emplace_back();
    if (!py::isinstance<py::array>(feed)) {
      item.value = feed.cast<const PyValue&>().value;
      continue;
    }
    auto array = feed.cast<py::array>();
    if (!(array.flags() & py::array::c_style)) Raise(InvalidArgument("a feed's array must be dense and row-major"));
    item.bytes = {static_cast<const std::byte*>(array.data()), static_cast<size_t>(array.nbytes())};
    keep.push_back(std::move(array));
  }
  Result<std::vector<ValuePtr>> returned = [&] {
    py::gil_scoped_release release;
    return self.replay->Run(fed);
  }();
  if (!returned.ok()) Raise(returned.status());
  std::vector<uint64_t> tokens;
  for (const ValuePtr& value : *returned) {
    values::ClaimToken(value);
    tokens.push_back(value->token());
  }
  return tokens;
}

}  // namespace

void BindCapture(py::module_& module) {
  BindGuards(module);
  const py::class_<HeldProfiler> held(module, "HeldProfiler");
  // Both are functions: the profiler has seen the call of the one, and sees the return of the other.
  module.def("hold_profiler", [] { return HeldProfiler(); });
  module.def("put_back_profiler", &HeldProfiler::PutBack, py::arg("held"));
  py::class_<PyValue>(module, "DeviceValue")
      .def_property_readonly("dtype",
                             [](const PyValue& self) { return std::string(DTypeName(self.value->type().dtype)); })
      .def_property_readonly("dims", [](const PyValue& self) { return Tuple(self.value->type().dims); })
      .def_property_readonly("shard_dims", [](const PyValue& self) { return Tuple(self.value->shard_type().dims); })
      .def_property_readonly("device", [](const PyValue& self) { return DeviceOf(*self.value); })
      .def_property_readonly("devices", [](const PyValue& self) { return Tuple(self.value->devices()); })
      .def_property_readonly("tiling", [](const PyValue& self) { return TilingToPython(self.value->tiling()); })
      .def_property_readonly("is_uploaded_scalar", [](const PyValue& self) { return self.value->scalar().has_value(); })
      .def("boxes", [](const PyValue& self) { return BoxesOf(*self.value); })
      .def(
          "buffer",
          [](const PyValue& self, bool kept) {
            if (kept) self.value->Keep();
            return BufferOf(self);
          },
          py::arg("kept") = false);
  py::class_<PyCell>(module, "BufferCell")
      .def_property_readonly("alive", [](const PyCell& self) { return !self.cell->is_empty(); })
      .def_property_readonly("token",
                             [](const PyCell& self) {
                               const ValuePtr value = self.cell->value();
                               return value != nullptr ? values::PublishToken(value) : 0;
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
  module.def("start_recording", [] { Check(capture::Recorder::Start()); });
  module.def("stop_recording", [] {
    const capture::Recording recording = capture::Recorder::Stop();
    return Describe(recording);
  });
  module.def(
      "digest",
      [](const py::array& array) {
        if (!(array.flags() & py::array::c_style)) Raise(InvalidArgument("the array must be dense and row-major"));
        return capture::Digest(array.data(), static_cast<size_t>(array.nbytes()));
      },
      py::arg("array"));
  py::class_<PyReplay>(module, "Replay")
      .def(py::init(&MakeReplay), py::arg("program"), py::arg("inputs"), py::arg("outputs"), py::kw_only(),
           py::arg("states"), py::arg("feeds"))
      .def(
          "bind",
          [](const PyReplay& self, size_t state, const PyCell& cell) { Check(self.replay->Bind(state, cell.cell)); },
          py::arg("state"), py::arg("cell"))
      .def("check_states", [](const PyReplay& self) { Check(self.replay->CheckStates()); })
      .def("run", &RunReplay, py::arg("feeds"));
}

}  // namespace pathways::bindings
