// Programs, buffers of many shards and slices: methods of Session.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/bindings/values.h"
#include "csrc/wire/times_bodies.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

using client::Session;
using SessionPtr = std::shared_ptr<Session>;

template <typename T>
T Get(const py::dict& from, const char* key) {
  if (!from.contains(key)) Raise(InvalidArgument(std::string("expected '") + key + "' in a plan, got none"));
  return from[key].cast<T>();
}

wire::Box BoxOf(const py::dict& from) {
  return {Option<std::vector<int64_t>>(from, "start", {}), Option<std::vector<int64_t>>(from, "size", {})};
}

TensorType TypeOf(const py::dict& from) {
  return {DTypeFromName(Get<std::string>(from, "dtype")), Get<std::vector<int64_t>>(from, "dims")};
}

wire::PlanStep StepOf(const py::dict& from, const std::vector<PyFunction>& functions) {
  wire::PlanStep step;
  const auto kind = Get<std::string>(from, "kind");
  if (kind == "free") {
    step.kind = wire::StepKind::kFree;
    step.arguments = Get<std::vector<uint32_t>>(from, "slots");
    return step;
  }
  step.node = Get<uint32_t>(from, "node");
  if (kind == "execute") {
    step.kind = wire::StepKind::kExecute;
    step.gang = Option<uint32_t>(from, "gang", step.node);
    const auto function = Get<size_t>(from, "function");
    if (function >= functions.size()) {
      Raise(InvalidArgument("a plan names function " + std::to_string(function) + " of " +
                            std::to_string(functions.size())));
    }
    step.function = functions[function].function->id();
    step.arguments = Get<std::vector<uint32_t>>(from, "arguments");
    step.results = Get<std::vector<uint32_t>>(from, "results");
    step.donated = Option<std::vector<uint32_t>>(from, "donated", {});
  } else if (kind == "send") {
    step.kind = wire::StepKind::kSend;
    step.arguments = {Get<uint32_t>(from, "slot")};
    step.shard = Get<uint32_t>(from, "shard");
    step.channel = Get<uint32_t>(from, "channel");
    step.host = Get<uint32_t>(from, "host");
    step.box = BoxOf(from);
  } else if (kind == "receive") {
    step.kind = wire::StepKind::kReceive;
    step.results = {Get<uint32_t>(from, "slot")};
    step.shard = Get<uint32_t>(from, "shard");
    for (const py::handle& item : from["pieces"]) {
      const auto piece = item.cast<py::dict>();
      step.pieces.push_back({Get<uint32_t>(piece, "channel"), Get<uint32_t>(piece, "host"), BoxOf(piece)});
    }
  } else if (kind == "copy") {
    step.kind = wire::StepKind::kCopy;
    step.arguments = {Get<uint32_t>(from, "from_slot")};
    step.source_shard = Get<uint32_t>(from, "from_shard");
    step.results = {Get<uint32_t>(from, "slot")};
    step.shard = Get<uint32_t>(from, "shard");
  } else {
    Raise(InvalidArgument("expected a step execute, send, receive, copy or free, got '" + kind + "'"));
  }
  return step;
}

wire::RegisterPlan PlanOf(const py::dict& from, const std::vector<PyFunction>& functions) {
  wire::RegisterPlan plan;
  plan.host = Get<uint32_t>(from, "host");
  plan.channels = Option<uint32_t>(from, "channels", 0);
  plan.nodes = Get<std::vector<std::string>>(from, "nodes");
  for (const py::handle& item : from["slots"]) {
    const auto slot = item.cast<py::dict>();
    plan.slots.push_back(
        {TypeOf(slot), Get<std::vector<uint32_t>>(slot, "shards"), Get<std::vector<uint32_t>>(slot, "devices")});
  }
  const auto ports = [&](const char* key) {
    std::vector<wire::PlanPort> result;
    for (int64_t slot : Get<std::vector<int64_t>>(from, key)) {
      result.push_back({slot < 0 ? wire::kNoSlot : static_cast<uint32_t>(slot), 1});
    }
    return result;
  };
  plan.inputs = ports("inputs");
  plan.outputs = ports("outputs");
  for (const py::handle& item : from["steps"]) plan.steps.push_back(StepOf(item.cast<py::dict>(), functions));
  return plan;
}

PyProgram RegisterProgram(const SessionPtr& session, const std::string& name, const std::vector<py::dict>& plans,
                          const std::vector<py::dict>& inputs, const std::vector<py::dict>& outputs,
                          const std::vector<PyFunction>& functions, const std::string& source) {
  client::ProgramSpec spec;
  spec.name = name;
  spec.source = source;
  for (const py::dict& plan : plans) spec.plans.push_back(PlanOf(plan, functions));
  const auto ports = [](const std::vector<py::dict>& from) {
    std::vector<client::Port> result;
    for (const py::dict& port : from) result.push_back({TypeOf(port), Get<std::vector<uint32_t>>(port, "devices")});
    return result;
  };
  spec.inputs = ports(inputs);
  spec.outputs = ports(outputs);
  for (const PyFunction& function : functions) spec.functions.push_back(function.function);
  Result<std::shared_ptr<client::Program>> program = [&] {
    py::gil_scoped_release release;
    return session->programs().Register(std::move(spec));
  }();
  return {Unwrap(std::move(program))};
}

std::vector<client::ProgramArgument> Arguments(const py::sequence& values) {
  std::vector<client::ProgramArgument> arguments;
  arguments.reserve(values.size());
  for (const py::handle& value : values) {
    if (py::isinstance<PyBuffer>(value)) {
      const auto& buffer = value.cast<const PyBuffer&>();
      if (buffer.index && buffer.buffer->devices().size() > 1) {
        arguments.push_back({nullptr, {{buffer.buffer, *buffer.index}}});
      } else {
        arguments.push_back({buffer.buffer, {}});
      }
      continue;
    }
    client::ProgramArgument assembled;
    for (const py::handle& part : value) {
      const auto& buffer = part.cast<const PyBuffer&>();
      assembled.shards.push_back(buffer.only_shard());
    }
    arguments.push_back(std::move(assembled));
  }
  return arguments;
}

std::vector<PyBuffer> RunProgram(const SessionPtr& session, const PyProgram& program, const py::sequence& values,
                                 const std::vector<uint32_t>& donated) {
  const std::vector<client::ProgramArgument> arguments = Arguments(values);
  Result<client::RunResult> result = [&] {
    py::gil_scoped_release release;
    return session->program_runs().Run(program.program, arguments, donated);
  }();
  if (!result.ok()) Raise(result.status());
  std::vector<PyBuffer> outputs;
  outputs.reserve(result->outputs.size());
  for (auto& output : result->outputs) outputs.push_back({std::move(output), std::nullopt});
  return outputs;
}

// Runs per loop in C++: the outputs of each run are the first arguments of the next.
Status Chain(Session& session, const PyProgram& program, std::vector<client::ProgramArgument> arguments, int count,
             bool wait_each, std::vector<double>* seconds) {
  std::shared_ptr<Event> last;
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    PW_ASSIGN_OR_RETURN(client::RunResult result, session.program_runs().Run(program.program, arguments));
    if (wait_each) {
      PW_RETURN_IF_ERROR(result.done->Wait());
      seconds->push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    for (size_t k = 0; k < result.outputs.size() && k < arguments.size(); ++k) {
      arguments[k] = {std::move(result.outputs[k]), {}};
    }
    last = std::move(result.done);
  }
  PW_RETURN_IF_ERROR(session.runs().Drain(std::chrono::minutes(5)));
  return last ? last->Wait() : OkStatus();
}

double BenchProgram(const SessionPtr& session, const PyProgram& program, const py::sequence& values, int count) {
  const auto arguments = Arguments(values);
  py::gil_scoped_release release;
  const auto start = std::chrono::steady_clock::now();
  const Status status = Chain(*session, program, arguments, count, false, nullptr);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  py::gil_scoped_acquire acquire;
  Check(status);
  return seconds;
}

std::vector<double> BenchProgramRoundTrip(const SessionPtr& session, const PyProgram& program,
                                          const py::sequence& values, int count) {
  const auto arguments = Arguments(values);
  std::vector<double> seconds;
  py::gil_scoped_release release;
  const Status status = Chain(*session, program, arguments, count, true, &seconds);
  py::gil_scoped_acquire acquire;
  Check(status);
  return seconds;
}

// (real_ns_ahead, [(run, missing, [(device, node, its place in the plan, start_ns, end_ns)])])
py::tuple TimesOf(const SessionPtr& session, const PyProgram& program, uint32_t device, double timeout_s) {
  const wire::Times times = Unwrap([&]() -> Result<wire::Times> {
    py::gil_scoped_release release;
    PW_ASSIGN_OR_RETURN(
        const client::QueryAnswer answer,
        session->queries().Ask(wire::QueryKind::kTimes, program.program->id(), device, Milliseconds(timeout_s)));
    return wire::DecodeTimes(answer.payload);
  }());
  std::vector<py::str> nodes(times.nodes.begin(), times.nodes.end());
  py::list runs;
  for (const wire::TimedRun& run : times.runs) {
    py::list computations;
    for (const wire::TimedComputation& one : run.computations) {
      computations.append(py::make_tuple(one.device, nodes[one.node], one.node, one.start_ns, one.end_ns));
    }
    runs.append(py::make_tuple(run.run, run.missing, computations));
  }
  return py::make_tuple(times.real_ns_ahead, runs);
}

PyBuffer PutSharded(const SessionPtr& session, const std::vector<py::object>& shards,
                    const std::vector<uint32_t>& devices, const std::string& dtype) {
  if (shards.empty()) Raise(InvalidArgument("expected at least one shard, got none"));
  std::vector<HostValue> values;
  std::vector<const void*> data;
  for (const py::object& shard : shards) {
    values.push_back(ToHostValue(shard, dtype));
    if (values.back().type != values.front().type) {
      Raise(InvalidArgument("expected shards of one type, got " + values.front().type.ToString() + " and " +
                            values.back().type.ToString()));
    }
    data.push_back(values.back().array.data());
  }
  Result<std::shared_ptr<client::LogicalBuffer>> buffer = [&] {
    py::gil_scoped_release release;
    return session->buffers().PutSharded(devices, values.front().type, data);
  }();
  return {Unwrap(std::move(buffer)), std::nullopt};
}

py::dict RequestSlice(const SessionPtr& session, uint32_t device_count, const std::string& island,
                      const std::string& platform, int64_t min_memory_bytes, uint32_t hosts,
                      const std::vector<uint32_t>& among, double timeout_s) {
  const wire::RequestSlice request{0, device_count, island, platform, min_memory_bytes, hosts, among};
  Result<client::Slice> slice = [&] {
    py::gil_scoped_release release;
    return session->slices().Request(request, Milliseconds(timeout_s));
  }();
  client::Slice granted = Unwrap(std::move(slice));
  py::dict result;
  result["slice"] = granted.id;
  result["devices"] = granted.devices;
  return result;
}

}  // namespace

void BindPrograms(py::class_<Session, SessionPtr>& session, py::module_& module) {
  py::class_<PyProgram>(module, "Program")
      .def_property_readonly("name", [](const PyProgram& self) { return self.program->spec().name; })
      .def(
          "wait_ready",
          [](const PyProgram& self, double timeout_s) {
            Check(WaitFor(self.program->ready(), timeout_s,
                          "program '" + self.program->spec().name + "' to be ready on its hosts"));
          },
          py::arg("timeout_s"));
  session
      .def("register_program", &RegisterProgram, py::arg("name"), py::arg("plans"), py::arg("inputs"),
           py::arg("outputs"), py::kw_only(), py::arg("functions"), py::arg("source") = "")
      .def("run_program", &RunProgram, py::arg("program"), py::arg("args"),
           py::arg("donated") = std::vector<uint32_t>())
      .def("bench_program", &BenchProgram, py::arg("program"), py::arg("args"), py::arg("count"))
      .def("bench_program_round_trip", &BenchProgramRoundTrip, py::arg("program"), py::arg("args"), py::arg("count"))
      .def("times_of", &TimesOf, py::arg("program"), py::arg("device"), py::arg("timeout_s"))
      .def("put_sharded", &PutSharded, py::arg("shards"), py::arg("devices"), py::kw_only(), py::arg("dtype") = "")
      .def("request_slice", &RequestSlice, py::arg("device_count"), py::kw_only(), py::arg("island") = "",
           py::arg("platform") = "", py::arg("min_memory_bytes") = 0, py::arg("hosts") = 0,
           py::arg("among") = std::vector<uint32_t>(), py::arg("timeout_s") = 10.0)
      .def(
          "release_slice",
          [](const SessionPtr& self, uint64_t slice) {
            py::gil_scoped_release release;
            self->slices().Release(slice);
          },
          py::arg("slice"));
}

}  // namespace pathways::bindings
