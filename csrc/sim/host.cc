// Host: joining, functions, plans' registration, and what concerns a whole client or cluster. Buffers and runs are in
// files of their own.
#include "csrc/sim/host.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "csrc/sim/host_runs.h"
#include "csrc/wire/times_bodies.h"

namespace pathways::sim {

using wire::Type;

Host::Host(World* world, HostSpec spec, Reply reply)
    : world_(world),
      spec_(std::move(spec)),
      reply_(std::move(reply)),
      account_(std::make_shared<store::MemoryAccount>(std::vector<int64_t>(spec_.devices, spec_.memory_limit_bytes))),
      runner_(std::make_unique<ProgramRunner>(this)) {}

Host::~Host() = default;

void Host::Join() {
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = spec_.build;
  hello.name = spec_.name;
  hello.machine = "simulated";
  hello.platform = "sim";
  hello.platform_version = "simulated devices, no values";
  hello.island = spec_.island;
  for (uint32_t d = 0; d < spec_.devices; ++d) {
    hello.devices.push_back({d, "simulated", spec_.memory_limit_bytes});
  }
  // No data endpoint: there is nothing to upload to, and a fetch is answered with a size only.
  Send(hello);
}

void Host::Die() {
  alive_ = false;
  functions_.clear();
  programs_.clear();
  buffers_.clear();
  done_.outcomes.clear();
}

void Host::OnMessage(std::string_view frame, const std::vector<Payload>& payloads) {
  if (!alive_) return;
  Status status = [&]() -> Status {
    PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frame));
    return Handle(head, payloads);
  }();
  if (!status.ok()) last_refusal_ = Here(status);
}

Status Host::Handle(const wire::Head& head, const std::vector<Payload>& payloads) {
  switch (head.header.type) {
    case Type::kRunProgram: {
      PW_ASSIGN_OR_RETURN(const wire::RunProgram run, wire::Decode<wire::RunProgram>(head.body));
      OnRunProgram(run);
      return OkStatus();
    }
    case Type::kRunInPlace: {
      PW_ASSIGN_OR_RETURN(const wire::RunInPlace run, wire::Decode<wire::RunInPlace>(head.body));
      OnRunInPlace(run);
      return OkStatus();
    }
    case Type::kRun: {
      PW_ASSIGN_OR_RETURN(const wire::Run run, wire::Decode<wire::Run>(head.body));
      OnRun(run);
      return OkStatus();
    }
    case Type::kFree: {
      PW_ASSIGN_OR_RETURN(const wire::Free request, wire::Decode<wire::Free>(head.body));
      for (const uint64_t id : request.buffers) buffers_.erase(id);
      return OkStatus();
    }
    case Type::kPut: {
      PW_ASSIGN_OR_RETURN(const wire::Put put, wire::Decode<wire::Put>(head.body));
      OnPut(put);
      return OkStatus();
    }
    case Type::kFetch: {
      PW_ASSIGN_OR_RETURN(const wire::Fetch fetch, wire::Decode<wire::Fetch>(head.body));
      OnFetch(fetch);
      return OkStatus();
    }
    case Type::kCopy: {
      PW_ASSIGN_OR_RETURN(const wire::Copy copy, wire::Decode<wire::Copy>(head.body));
      OnCopy(copy);
      return OkStatus();
    }
    case Type::kExpect: {
      PW_ASSIGN_OR_RETURN(const wire::Expect expect, wire::Decode<wire::Expect>(head.body));
      OnExpect(expect);
      return OkStatus();
    }
    case Type::kRegister: {
      PW_ASSIGN_OR_RETURN(wire::Register request, wire::Decode<wire::Register>(head.body));
      return OnRegister(std::move(request), payloads);
    }
    case Type::kRegisterPlan: {
      PW_ASSIGN_OR_RETURN(wire::RegisterPlan description, wire::Decode<wire::RegisterPlan>(head.body));
      return OnRegisterPlan(std::move(description));
    }
    case Type::kUnregister: {
      PW_ASSIGN_OR_RETURN(const wire::Unregister request, wire::Decode<wire::Unregister>(head.body));
      for (const uint64_t id : request.functions) {
        functions_.erase(id);
        world_->device_lists.erase(id);
      }
      for (const uint64_t id : request.programs) programs_.erase(id);
      return OkStatus();
    }
    case Type::kSpill: {
      PW_ASSIGN_OR_RETURN(const wire::Spill request, wire::Decode<wire::Spill>(head.body));
      OnSpill(request.buffers, true);
      return OkStatus();
    }
    case Type::kRestore: {
      PW_ASSIGN_OR_RETURN(const wire::Restore request, wire::Decode<wire::Restore>(head.body));
      OnSpill(request.buffers, false);
      return OkStatus();
    }
    case Type::kQuery: {
      PW_ASSIGN_OR_RETURN(const wire::Query query, wire::Decode<wire::Query>(head.body));
      OnQuery(query);
      return OkStatus();
    }
    case Type::kOwnerGone: {
      PW_ASSIGN_OR_RETURN(const wire::OwnerGone gone, wire::Decode<wire::OwnerGone>(head.body));
      OnOwnerGone(gone.client);
      return OkStatus();
    }
    case Type::kHostLost: {
      PW_ASSIGN_OR_RETURN(const wire::HostLost lost, wire::Decode<wire::HostLost>(head.body));
      world_->LoseHost(lost.host, Unavailable(lost.reason));
      return OkStatus();
    }
    case Type::kWelcome: {
      PW_ASSIGN_OR_RETURN(const wire::Welcome welcome, wire::Decode<wire::Welcome>(head.body));
      return OnWelcome(welcome);
    }
    case Type::kReject: {
      PW_ASSIGN_OR_RETURN(const wire::Reject reject, wire::Decode<wire::Reject>(head.body));
      return reject.status.WithPrefix("the controller refused this host");
    }
    case Type::kTopology:  // the others are known from the same process
    case Type::kHeartbeat:
      return OkStatus();
    case Type::kGoodbye:
      Die();
      return OkStatus();
    default:
      return InvalidArgument("a host does not take " + std::string(wire::TypeName(head.header.type)));
  }
}

Status Host::OnWelcome(const wire::Welcome& welcome) {
  if (welcome.peer >= welcome.hosts.size()) return DataLoss("WELCOME does not describe this host");
  index_ = welcome.peer;
  first_device_ = welcome.hosts[index_].first_device;
  joined_ = true;
  world_->AddHost(index_, first_device_, spec_.devices);
  return OkStatus();
}

void World::AddHost(uint32_t host, uint32_t first_device, uint32_t devices) {
  const size_t end = size_t{first_device} + devices;
  if (device_to_host.size() < end) {
    fleet.AddDevices(static_cast<uint32_t>(end - device_to_host.size()));
    device_to_host.resize(end, UINT32_MAX);
  }
  std::fill(device_to_host.begin() + first_device, device_to_host.begin() + static_cast<ptrdiff_t>(end), host);
}

void World::LoseHost(uint32_t host, const Status& error) {
  const auto first = std::find(device_to_host.begin(), device_to_host.end(), host);
  if (first == device_to_host.end()) return;  // known already
  const auto count = static_cast<uint32_t>(std::count(first, device_to_host.end(), host));
  const auto device = static_cast<uint32_t>(first - device_to_host.begin());
  std::fill(first, first + count, UINT32_MAX);
  fleet.LoseDevices(device, count, error);
  network.LoseHost(host, error);
}

void Host::OnOwnerGone(uint32_t client) {
  const auto is_owned = [client](const auto& entry) { return wire::ClientOf(entry.first) == client; };
  std::erase_if(buffers_, is_owned);
  std::erase_if(programs_, is_owned);
  std::erase_if(functions_, is_owned);
  std::erase_if(world_->device_lists, is_owned);
  world_->network.DropClient(client, Cancelled("client " + std::to_string(client) + " is gone"));
}

// --- functions

Status Host::OnRegister(wire::Register request, const std::vector<Payload>& payloads) {
  const uint64_t id = request.function;
  if (functions_.contains(id)) return Status(Code::kAlreadyExists, "function " + std::to_string(id) + " exists");
  auto owned = std::make_unique<Function>();
  Function& function = *owned;
  std::string what = "function '" + request.name + "'";
  if (!request.source.empty()) what += " (" + request.source + ")";
  function.what = std::make_shared<const std::string>(std::move(what));
  function.trace_name = world_->trace.Name(request.name);
  std::weak_ptr<const std::vector<uint32_t>>& shared = world_->device_lists[id];
  function.devices = shared.lock();
  if (!function.devices) {
    function.devices = std::make_shared<const std::vector<uint32_t>>(request.devices);
    shared = function.devices;
  }
  for (size_t i = 0; i < request.devices.size(); ++i) {
    if (!IsLocal(request.devices[i])) continue;
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
        world_->compiler.Compile(function.request, function.devices->size(), payloads[0]);
    function.status = compiled.status().WithPrefix("compiling " + *function.what);
    if (compiled.ok()) {
      function.compiled = *std::move(compiled);
      function.meets = world_->compiler.Meets(function.request, function.devices->size(), *function.compiled);
      function.cost_ns = world_->compiler.CostNs(function.request.name, function.meets);
    }
  }
  if (!function.status.ok()) function.status = Here(function.status);
  functions_[id] = std::move(owned);
  if (world_->compile_ns == 0) {
    OnCompiled(id);
  } else {
    world_->timeline.At(world_->timeline.now() + world_->compile_ns, [this, id](int64_t) { OnCompiled(id); });
  }
  return OkStatus();
}

void Host::OnCompiled(uint64_t id) {
  auto it = functions_.find(id);
  if (it == functions_.end()) return;  // unregistered, its client is gone, or this host is
  Function& function = *it->second;
  function.ready = true;
  wire::Registered answer;
  answer.function = id;
  answer.host = index_;
  answer.status = function.status;
  if (function.compiled) {
    answer.outputs = function.compiled->outputs;
    answer.output_sharding = function.compiled->output_sharding;
  }
  answer.compile_us = static_cast<uint64_t>(world_->compile_ns / 1000);
  Send(answer);
  AnswerPlans();
}

// --- plans

Status Host::OnRegisterPlan(wire::RegisterPlan description) {
  const uint64_t id = description.program;
  if (programs_.contains(id)) return Status(Code::kAlreadyExists, "program " + std::to_string(id) + " exists");
  auto owned = std::make_unique<Program>();
  owned->trace_name = world_->trace.Name(description.name);
  for (const std::string& node : description.nodes) owned->node_names.push_back(world_->trace.Name(node));
  const std::string name = "program '" + description.name + "'";
  Result<plan::Plan> plan = plan::Plan::Make(std::move(description), first_device_, spec_.devices);
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
    owned->status = Here(plan.status().WithPrefix(name));
  }
  programs_[id] = std::move(owned);
  AnswerPlans();
  return OkStatus();
}

void Host::AnswerPlans() {
  for (auto& [id, program] : programs_) {
    if (program->ready) continue;
    bool wait = false;
    if (program->plan) {
      for (const uint64_t function : program->plan->functions()) {
        auto it = functions_.find(function);
        if (it == functions_.end()) {
          program->status = Here(NotFound("program '" + program->plan->description().name + "' names function " +
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
    answer.host = index_;
    answer.status = program->status;
    if (program->plan) {
      answer.peak_bytes = program->plan->peak_bytes();
      answer.result_bytes = program->plan->result_bytes();
    }
    Send(answer);
  }
}

void Host::OnQuery(const wire::Query& query) {
  const auto integer = [](std::string name, int64_t value) {
    wire::Property property;
    property.name = std::move(name);
    property.kind = 1;
    property.integer = value;
    return property;
  };
  wire::Reply reply;
  reply.request = query.request;
  std::vector<Payload> payloads;
  auto function = functions_.find(query.function);
  if (query.kind == wire::QueryKind::kTimes) {
    Result<std::string> times = TimesOf(query.function);
    reply.status = times.status();
    if (times.ok()) payloads.push_back(std::make_shared<const std::string>(*std::move(times)));
  } else if (query.kind == wire::QueryKind::kActivity) {
    // Its computations take simulated time alone, and nobody waits long for those.
  } else if (query.kind == wire::QueryKind::kMemoryStats) {
    if (!IsLocal(query.device)) {
      reply.status = Here(InvalidArgument("expected a device of this host, got " + std::to_string(query.device)));
    } else {
      const size_t device = query.device - first_device_;
      reply.properties = {integer("bytes_in_use", account_->used(device)),
                          integer("peak_bytes", account_->peak(device)),
                          integer("limit_bytes", account_->limit(device)),
                          integer("live_buffers", static_cast<int64_t>(buffers_.size()))};
    }
  } else if (function == functions_.end()) {
    reply.status = Here(NotFound("function " + std::to_string(query.function) + " is not registered here"));
  } else if (query.kind == wire::QueryKind::kOptimizedProgram && function->second->status.ok()) {
    reply.format = function->second->request.format;
    payloads.push_back(function->second->module);  // nothing is optimised
  } else if (query.kind == wire::QueryKind::kCostAnalysis) {
    wire::Property cost;
    cost.name = "optimal_seconds";
    cost.kind = 2;
    cost.real = static_cast<double>(function->second->cost_ns) * 1e-9;
    reply.properties = {cost};
  } else {
    reply.status = Here(Unimplemented("a simulated device cannot answer query " +
                                      std::to_string(static_cast<int>(query.kind)) + "; it has no compiled program"));
  }
  Send(reply, std::move(payloads));
}

Result<std::string> Host::TimesOf(uint64_t id) const {
  auto it = programs_.find(id);
  if (it == programs_.end()) return Here(NotFound("program " + std::to_string(id) + " is not registered"));
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
  for (const Interval& interval : world_->trace.intervals()) {
    auto place = places.find(interval.run);
    auto node = nodes.find(interval.node);
    if (place == places.end() || node == nodes.end() || !IsLocal(interval.device)) continue;
    const size_t number = seen[{interval.run, interval.device, interval.node}]++;
    if (number >= node->second.size()) continue;
    wire::TimedRun& run = times.runs[place->second];
    if (run.missing > 0) --run.missing;
    run.computations.push_back({interval.device, node->second[number], interval.start, interval.end});
  }
  return wire::EncodeTimes(times);
}

}  // namespace pathways::sim
