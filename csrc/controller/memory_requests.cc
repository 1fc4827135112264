#include "csrc/controller/memory_requests.h"

#include <algorithm>
#include <vector>

namespace pathways::controller {
namespace {

void Donate(uint64_t argument, uint32_t shards, const std::vector<uint64_t>& assembled, MemoryRequest& request) {
  if (!(argument & wire::kAssembledBit)) {
    if (argument != 0) request.donated.push_back(argument);
    return;
  }
  const size_t first = argument & ~wire::kAssembledBit;
  for (size_t i = first; i < first + 2 * shards && i < assembled.size(); i += 2) {
    request.donated.push_back(assembled[i]);
  }
}

// Arguments that the message names and gives up.
void DonateNamed(const wire::RunInPlace& run, const plan::Places& places, const ProgramState& program,
                 MemoryRequest& request) {
  if (run.donated.empty()) return;
  std::vector<uint64_t> before(run.places.empty() ? 0 : places.buffers().size(), 0);
  for (size_t i = 0; i < run.places.size(); ++i) before[run.places[i]] = run.before[i];
  std::vector<char> donated(places.argument_places().size(), 0);
  for (const uint32_t position : run.donated) donated[position] = 1;
  size_t named = 0;
  for (size_t position = 0; position < donated.size(); ++position) {
    const uint32_t place = places.argument_places()[position];
    const uint64_t argument = place == wire::kNoPlace ? run.arguments[named++] : before.empty() ? 0 : before[place];
    if (donated[position]) Donate(argument, program.input_shards[position], run.assembled, request);
  }
}

// What runs of the program cost on all its hosts together.
void SumCosts(ProgramState& program) {
  MemoryRequest& memory = program.memory;
  if (!memory.hosts.empty()) return;
  for (const auto& [host, plan] : program.hosts) {
    memory.hosts.push_back(host);
    for (MemoryRequest::Made made : plan.made) {
      made.first_device += static_cast<uint32_t>(memory.devices.size());
      memory.made.push_back(made);
    }
    memory.devices.insert(memory.devices.end(), plan.made_devices.begin(), plan.made_devices.end());
    memory.scratch.insert(memory.scratch.end(), plan.scratch.begin(), plan.scratch.end());
  }
}

}  // namespace

// --- what functions and plans cost

void KeepCosts(const wire::Registered& answer, FunctionState& function) {
  function.output_bytes.clear();
  for (const TensorType& type : answer.outputs) function.output_bytes.push_back(type.ByteSize());
  function.temp_bytes = std::max(function.temp_bytes, static_cast<int64_t>(answer.temp_bytes));
}

void KeepCosts(const wire::RegisterPlan& plan, ProgramState& program, PlanState& state) {
  program.memory.Clear();
  for (size_t k = 0; k < plan.outputs.size(); ++k) {
    if (plan.outputs[k].slot >= plan.slots.size()) continue;
    const wire::PlanSlot& slot = plan.slots[plan.outputs[k].slot];
    if (slot.devices.empty()) continue;
    state.made.push_back({k, slot.type.ByteSize(), static_cast<uint32_t>(state.made_devices.size()),
                          static_cast<uint32_t>(slot.devices.size())});
    state.made_devices.insert(state.made_devices.end(), slot.devices.begin(), slot.devices.end());
  }
}

void KeepCosts(const wire::PlanReady& answer, const wire::HostDescription& host, PlanState& state) {
  state.scratch.clear();
  for (size_t d = 0; d < answer.peak_bytes.size() && d < host.devices.size(); ++d) {
    const int64_t results = d < answer.result_bytes.size() ? answer.result_bytes[d] : 0;
    const int64_t bytes = std::max<int64_t>(answer.peak_bytes[d] - results, 0);
    if (bytes > 0) state.scratch.push_back({host.first_device + static_cast<uint32_t>(d), bytes});
  }
}

// --- requests

void RequestRun(uint32_t client, const wire::Run& run, const FunctionState& function, const scheduler::GangShape& shape,
                MemoryRequest& request) {
  request.id = run.run;
  request.client = client;
  request.is_run = true;
  for (const scheduler::GangPart& part : shape.parts) {
    request.hosts.push_back(part.host);
    request.devices.insert(request.devices.end(), part.devices.begin(), part.devices.end());
  }
  for (const uint64_t argument : run.arguments) {
    if (!(argument & wire::kAssembledBit)) request.arguments.push_back(argument);
  }
  for (size_t i = 0; i < run.assembled.size(); i += 2) request.arguments.push_back(run.assembled[i]);
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size()) continue;
    const uint64_t argument = run.arguments[position];
    if (!(argument & wire::kAssembledBit)) {
      request.donated.push_back(argument);
      continue;
    }
    const size_t row = 2 * run.devices.size();
    const size_t first = (argument & ~wire::kAssembledBit) * row;
    for (size_t i = first; i < first + row && i < run.assembled.size(); i += 2) {
      request.donated.push_back(run.assembled[i]);
    }
  }
  const uint32_t device_count = static_cast<uint32_t>(request.devices.size());
  for (size_t k = 0; k < function.output_bytes.size() && k < run.output_count; ++k) {
    request.made.push_back({run.first_output + k, function.output_bytes[k], 0, device_count});
  }
  if (function.temp_bytes == 0) return;
  for (const uint32_t device : request.devices) request.scratch.push_back({device, function.temp_bytes});
}

void RequestInPlace(uint32_t client, const wire::RunInPlace& run, ProgramState& program, const plan::Places& places,
                    MemoryRequest& request) {
  SumCosts(program);
  const MemoryRequest& memory = program.memory;
  request.id = run.run;
  request.client = client;
  request.is_run = true;
  request.hosts = memory.hosts;
  request.scratch = memory.scratch;
  const auto name = [&](uint64_t id) {
    if (id != 0 && !(id & wire::kAssembledBit)) request.arguments.push_back(id);
  };
  std::for_each(run.arguments.begin(), run.arguments.end(), name);
  std::for_each(run.before.begin(), run.before.end(), name);
  for (size_t i = 0; i < run.assembled.size(); i += 2) request.arguments.push_back(run.assembled[i]);
  std::vector<char> differs(run.places.empty() ? 0 : places.buffers().size(), 0);
  for (const uint32_t place : run.places) differs[place] = 1;
  if (run.previous != 0 && run.places.empty()) {
    if (!program.residents) program.residents = std::make_shared<Residents>(Residents{places.buffers()});
    request.residents = program.residents;
  } else {
    for (size_t place = 0; place < differs.size(); ++place) {
      if (!differs[place]) request.arguments.push_back(places.buffers()[place]);
    }
  }
  DonateNamed(run, places, program, request);
  // What a result replaces stays until the run is over, unless the result is made in its memory.
  uint64_t unplaced = 0;
  size_t numbered = 0;  // results up to here are counted in `unplaced`
  for (const MemoryRequest::Made& made : memory.made) {
    const size_t k = made.buffer;
    if (k < numbered) unplaced = numbered = 0;  // the next host
    for (; numbered < k; ++numbered) unplaced += places.result_places()[numbered] == wire::kNoPlace;
    const uint32_t place = places.result_places()[k];
    const bool fresh = place == wire::kNoPlace || (!differs.empty() && differs[place]);
    if (!fresh && places.is_overwritten(place)) continue;
    MemoryRequest::Made one = made;
    one.buffer = place == wire::kNoPlace ? run.first_output + unplaced : places.buffers()[place];
    one.first_device = static_cast<uint32_t>(request.devices.size());
    for (uint32_t d = made.first_device; d < made.first_device + made.device_count; ++d) {
      if (fresh) {
        request.devices.push_back(memory.devices[d]);
      } else {
        request.scratch.push_back({memory.devices[d], made.bytes});
      }
    }
    if (fresh) request.made.push_back(one);
  }
}

void RequestProgram(uint32_t client, const wire::RunProgram& run, ProgramState& program, MemoryRequest& request) {
  SumCosts(program);
  request = program.memory;
  request.id = run.run;
  request.client = client;
  request.is_run = true;
  for (MemoryRequest::Made& made : request.made) made.buffer += run.first_output;
  for (const uint64_t argument : run.arguments) {
    if (!(argument & wire::kAssembledBit)) request.arguments.push_back(argument);
  }
  for (size_t i = 0; i < run.assembled.size(); i += 2) request.arguments.push_back(run.assembled[i]);
  for (const uint32_t position : run.donated) {
    if (position >= run.arguments.size() || position >= program.input_shards.size()) continue;
    Donate(run.arguments[position], program.input_shards[position], run.assembled, request);
  }
}

}  // namespace pathways::controller
