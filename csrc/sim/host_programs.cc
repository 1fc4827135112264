#include "csrc/sim/host_programs.h"

#include <map>
#include <tuple>

#include "csrc/wire/times_bodies.h"

namespace pathways::sim {

// --- functions

Launch Function::MakeLaunch(uint64_t run, uint32_t occurrence) const {
  const auto client = static_cast<uint32_t>(wire::ClientOf(run));
  const GangId id = {run, request.function, occurrence};
  return {id, what, client, trace_name, trace_name, cost_ns, meets ? devices : nullptr};
}

Status HostPrograms::Register(wire::Register request, const std::vector<Payload>& payloads) {
  const uint64_t id = request.function;
  if (functions_.contains(id)) return Status(Code::kAlreadyExists, "function " + std::to_string(id) + " exists");
  auto owned = std::make_unique<Function>();
  Function& function = *owned;
  std::string what = "function '" + request.name + "'";
  if (!request.source.empty()) what += " (" + request.source + ")";
  function.what = std::make_shared<const std::string>(std::move(what));
  function.trace_name = site_.world.trace.Name(request.name);
  std::weak_ptr<const std::vector<uint32_t>>& shared = site_.world.device_lists[id];
  function.devices = shared.lock();
  if (!function.devices) {
    function.devices = std::make_shared<const std::vector<uint32_t>>(request.devices);
    shared = function.devices;
  }
  for (size_t i = 0; i < request.devices.size(); ++i) {
    if (!site_.IsLocal(request.devices[i])) continue;
    function.local_numbers.push_back(static_cast<uint32_t>(i));
    function.local_devices.push_back(request.devices[i]);
  }
  request.devices.clear();
  function.request = std::move(request);
  if (payloads.empty()) {
    function.status = DataLoss("REGISTER needs a module as payload");
  } else {
    function.module = payloads[0];
    Result<std::shared_ptr<const Compiled>> compiled =
        site_.world.compiler.Compile(function.request, function.devices->size(), payloads[0]);
    function.status = compiled.status().WithPrefix("compiling " + *function.what);
    if (compiled.ok()) {
      function.compiled = *std::move(compiled);
      function.meets = site_.world.compiler.Meets(function.request, function.devices->size(), *function.compiled);
      function.cost_ns = site_.world.compiler.CostNs(function.request.name, function.meets);
    }
  }
  if (!function.status.ok()) function.status = site_.Here(function.status);
  functions_[id] = std::move(owned);
  if (site_.world.compile_ns == 0) {
    OnCompiled(id);
  } else {
    site_.world.timeline.At(site_.world.timeline.now() + site_.world.compile_ns,
                            [this, id](int64_t) { OnCompiled(id); });
  }
  return OkStatus();
}

void HostPrograms::OnCompiled(uint64_t id) {
  auto it = functions_.find(id);
  if (it == functions_.end()) return;  // unregistered, its client is gone, or this host is
  Function& function = *it->second;
  function.ready = true;
  wire::Registered answer;
  answer.function = id;
  answer.host = site_.index;
  answer.status = function.status;
  if (function.compiled) {
    answer.outputs = function.compiled->outputs;
    answer.output_sharding = function.compiled->output_sharding;
  }
  answer.compile_us = static_cast<uint64_t>(site_.world.compile_ns / 1000);
  site_.Send(answer);
  AnswerPlans();
}

const Function* HostPrograms::FindFunction(uint64_t id) const {
  auto it = functions_.find(id);
  return it == functions_.end() ? nullptr : it->second.get();
}

// --- programs

Status HostPrograms::On(wire::RegisterPlan description) {
  const uint64_t id = description.program;
  if (programs_.contains(id)) return Status(Code::kAlreadyExists, "program " + std::to_string(id) + " exists");
  auto owned = std::make_unique<Program>();
  owned->trace_name = site_.world.trace.Name(description.name);
  for (const std::string& node : description.nodes) owned->node_names.push_back(site_.world.trace.Name(node));
  const std::string name = "program '" + description.name + "'";
  Result<plan::Plan> plan = plan::Plan::Make(std::move(description), site_.first_device, site_.spec.devices);
  if (plan.ok()) {
    std::unordered_map<uint64_t, uint32_t> seen;
    for (const wire::PlanStep& step : plan->steps()) {
      const bool executes = step.kind == wire::StepKind::kExecute;
      owned->occurrence.push_back(executes ? seen[step.function]++ : 0);
      if (!executes) continue;
      const uint32_t place = step.results.empty() ? step.arguments[0] : step.results[0];
      owned->computations += static_cast<uint32_t>(plan->slots()[place].devices.size());
    }
    owned->plan = std::make_unique<plan::Plan>(*std::move(plan));
    const wire::RegisterPlan& checked = owned->plan->description();
    owned->places = plan::Places(plan::OverwrittenInputs(checked), checked.outputs.size());
  } else {
    owned->status = site_.Here(plan.status().WithPrefix(name));
  }
  programs_[id] = std::move(owned);
  AnswerPlans();
  return OkStatus();
}

void HostPrograms::AnswerPlans() {
  for (auto& [id, program] : programs_) {
    if (program->ready) continue;
    bool wait = false;
    if (program->plan) {
      for (const uint64_t function : program->plan->functions()) {
        auto it = functions_.find(function);
        if (it == functions_.end()) {
          program->status = site_.Here(NotFound("program '" + program->plan->description().name + "' names function " +
                                                std::to_string(function) + ", which is not registered on this host"));
        } else if (!it->second->ready) {
          wait = true;
        } else if (!it->second->status.ok() && program->status.ok()) {
          program->status = it->second->status;
        }
      }
    }
    if (wait) continue;
    program->ready = true;
    wire::PlanReady answer;
    answer.program = id;
    answer.host = site_.index;
    answer.status = program->status;
    if (program->plan) {
      answer.peak_bytes = program->plan->peak_bytes();
      answer.result_bytes = program->plan->result_bytes();
    }
    site_.Send(answer);
  }
}

Result<Program*> HostPrograms::FindProgram(uint64_t id) const {
  auto it = programs_.find(id);
  if (it == programs_.end()) return site_.Here(NotFound("program " + std::to_string(id) + " is not registered"));
  if (!it->second->ready) return site_.Here(Internal("a run overtook the registration of its program"));
  if (!it->second->status.ok()) return it->second->status;
  return it->second.get();
}

// --- both

void HostPrograms::On(const wire::Unregister& request) {
  for (const uint64_t id : request.functions) {
    functions_.erase(id);
    site_.world.device_lists.erase(id);
  }
  for (const uint64_t id : request.programs) programs_.erase(id);
}

void HostPrograms::DropClient(uint32_t client) {
  const auto is_owned = [client](const auto& entry) { return wire::ClientOf(entry.first) == client; };
  std::erase_if(programs_, is_owned);
  std::erase_if(functions_, is_owned);
  std::erase_if(site_.world.device_lists, is_owned);
}

void HostPrograms::Clear() {
  functions_.clear();
  programs_.clear();
}

void HostPrograms::Answer(const wire::Query& query, wire::Reply& reply, std::vector<Payload>& payloads) const {
  if (query.kind == wire::QueryKind::kTimes) {
    Result<std::string> times = TimesOf(query.function);
    reply.status = times.status();
    if (times.ok()) payloads.push_back(std::make_shared<const std::string>(*std::move(times)));
    return;
  }
  const Function* function = FindFunction(query.function);
  if (function == nullptr) {
    reply.status = site_.Here(NotFound("function " + std::to_string(query.function) + " is not registered here"));
  } else if (query.kind == wire::QueryKind::kOptimizedProgram && function->status.ok()) {
    reply.format = function->request.format;
    payloads.push_back(function->module);  // nothing is optimised
  } else if (query.kind == wire::QueryKind::kCostAnalysis) {
    reply.properties.push_back({"optimal_seconds", 2, "", 0, static_cast<double>(function->cost_ns) * 1e-9});
  } else {
    reply.status =
        site_.Here(Unimplemented("a simulated device cannot answer query " +
                                 std::to_string(static_cast<int>(query.kind)) + "; it has no compiled program"));
  }
}

Result<std::string> HostPrograms::TimesOf(uint64_t id) const {
  auto it = programs_.find(id);
  if (it == programs_.end()) return site_.Here(NotFound("program " + std::to_string(id) + " is not registered"));
  const Program& program = *it->second;
  wire::Times times;
  if (!program.plan) return wire::EncodeTimes(times);
  times.nodes = program.plan->description().nodes;
  std::unordered_map<uint64_t, size_t> places;
  for (const uint64_t run : program.last_runs) {
    places[run] = times.runs.size();
    times.runs.push_back({run, program.computations, {}});
  }
  std::unordered_map<uint32_t, std::vector<uint32_t>> nodes;  // by name in the trace; devices run them in order
  for (size_t i = 0; i < program.node_names.size(); ++i) {
    nodes[program.node_names[i]].push_back(static_cast<uint32_t>(i));
  }
  std::map<std::tuple<uint64_t, uint32_t, uint32_t>, size_t> seen;  // by run, device and name
  for (const Interval& interval : site_.world.trace.intervals()) {
    auto place = places.find(interval.run);
    auto node = nodes.find(interval.node);
    if (place == places.end() || node == nodes.end() || !site_.IsLocal(interval.device)) continue;
    const size_t number = seen[{interval.run, interval.device, interval.node}]++;
    if (number >= node->second.size()) continue;
    wire::TimedRun& run = times.runs[place->second];
    if (run.missing > 0) --run.missing;
    run.computations.push_back({interval.device, node->second[number], interval.start, interval.end});
  }
  return wire::EncodeTimes(times);
}

}  // namespace pathways::sim
