#include "csrc/client/program_runs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/wire/plan_bodies.h"

namespace pathways::client {

void ProgramArgument::GiveUp() const {
  if (buffer) buffer->GiveUp();
  for (const Shard& shard : shards) shard.buffer->GiveUp();
}

Result<uint64_t> ProgramRuns::ArgumentId(const Program& program, size_t position, const ProgramArgument& argument,
                                         std::vector<uint64_t>& assembled) const {
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument(*program.description() + ", argument " + std::to_string(position) + ": " + why);
  };
  if (position >= program.spec().inputs.size()) return wrong("there is no such argument");
  const Port& port = program.spec().inputs[position];
  const auto check = [&](const LogicalBuffer& buffer) -> Status {
    if (buffer.session().get() != core_.session) return wrong("it belongs to another session");
    if (const Status held = buffer.CheckHeld(); !held.ok()) {
      return held.WithPrefix(*program.description() + ", argument " + std::to_string(position));
    }
    if (buffer.shard_type() != port.shard_type) {
      return wrong("expected shards of " + port.shard_type.ToString() + ", got " + buffer.shard_type().ToString());
    }
    return OkStatus();
  };
  if (argument.buffer) {
    PW_RETURN_IF_ERROR(check(*argument.buffer));
    if (argument.buffer->devices() != port.devices) {
      return wrong("its shards are on other devices than the program expects them");
    }
    return argument.buffer->id();
  }
  if (argument.shards.size() != port.devices.size()) {
    return wrong("expected " + std::to_string(port.devices.size()) + " shards, got " +
                 std::to_string(argument.shards.size()));
  }
  const uint64_t id = wire::kAssembledBit | assembled.size();
  for (size_t i = 0; i < argument.shards.size(); ++i) {
    const Shard& shard = argument.shards[i];
    PW_RETURN_IF_ERROR(check(*shard.buffer));
    if (shard.device() != port.devices[i]) {
      return wrong("expected shard " + std::to_string(i) + " on device " + std::to_string(port.devices[i]) +
                   ", got it on device " + std::to_string(shard.device()));
    }
    assembled.push_back(shard.buffer->id());
    assembled.push_back(shard.index);
  }
  return id;
}

template <typename Body>
Result<std::shared_ptr<Event>> ProgramRuns::Enter(const Program& program, size_t outputs, Body& run, bool waits) {
  run.program = program.id();
  run.run = core_.MintIds();
  run.output_count = static_cast<uint32_t>(outputs);
  run.first_output = core_.MintIds(std::max<uint32_t>(run.output_count, 1));
  run.first_key = core_.MintIds(std::max<uint32_t>(program.channels(), 1));
  auto done = Event::Make();
  PW_RETURN_IF_ERROR(
      runs_.Enter(run.run, {done, program.hosts()->front(), program.description(), program.hosts()}, waits));
  return done;
}

Result<RunResult> ProgramRuns::Run(const std::shared_ptr<Program>& program, std::span<const ProgramArgument> arguments,
                                   std::span<const uint32_t> donated) {
  const ProgramSpec& spec = program->spec();
  if (arguments.size() != spec.inputs.size()) {
    return InvalidArgument(*program->description() + ": expected " + std::to_string(spec.inputs.size()) +
                           " arguments, got " + std::to_string(arguments.size()));
  }
  wire::RunProgram run;
  run.arguments.reserve(arguments.size());
  for (size_t position = 0; position < arguments.size(); ++position) {
    PW_ASSIGN_OR_RETURN(const uint64_t id, ArgumentId(*program, position, arguments[position], run.assembled));
    run.arguments.push_back(id);
  }
  for (const uint32_t position : donated) {
    if (position >= arguments.size()) return InvalidArgument("there is no argument " + std::to_string(position));
    run.donated.push_back(position);
  }
  RunResult result;
  PW_ASSIGN_OR_RETURN(result.done, Enter(*program, spec.outputs.size(), run, true));
  result.outputs.reserve(spec.outputs.size());
  for (size_t k = 0; k < spec.outputs.size(); ++k) {
    result.outputs.push_back(std::make_shared<LogicalBuffer>(
        core_.Keep(), run.first_output + k, spec.outputs[k].devices, spec.outputs[k].shard_type, result.done));
  }
  PW_RETURN_IF_ERROR(runs_.Send(run, result.done));
  for (const uint32_t position : donated) arguments[position].GiveUp();
  return result;
}

Result<InPlaceResult> ProgramRuns::RunInPlace(const std::shared_ptr<Program>& program,
                                              const InPlaceArguments& arguments) {
  const ProgramSpec& spec = program->spec();
  wire::RunInPlace run;
  run.previous = arguments.previous;
  run.argument_places = arguments.argument_places;
  run.result_places = arguments.result_places;
  InPlaceResult result;
  const uint64_t first_placed = arguments.changes.empty() ? 0 : core_.MintIds(arguments.changes.size());
  for (size_t i = 0; i < arguments.changes.size(); ++i) {
    const InPlaceArguments::Change& change = arguments.changes[i];
    uint64_t before = 0;
    if (change.before) {
      PW_ASSIGN_OR_RETURN(before, ArgumentId(*program, change.position, *change.before, run.assembled));
    }
    result.placed.push_back(change.written ? first_placed + i : before);
    run.places.push_back(change.place);
    run.before.push_back(before);
  }
  run.after = result.placed;
  for (const InPlaceArguments::Argument& argument : arguments.arguments) {
    PW_ASSIGN_OR_RETURN(const uint64_t id, ArgumentId(*program, argument.position, argument.value, run.assembled));
    run.arguments.push_back(id);
  }
  run.donated = arguments.donated;
  PW_ASSIGN_OR_RETURN(result.done, Enter(*program, arguments.results.size(), run, false));
  result.run = run.run;
  for (size_t k = 0; k < arguments.results.size(); ++k) {
    const Port& port = spec.outputs[arguments.results[k]];
    result.outputs.push_back(std::make_shared<LogicalBuffer>(core_.Keep(), run.first_output + k, port.devices,
                                                             port.shard_type, result.done));
  }
  PW_RETURN_IF_ERROR(runs_.Send(run, result.done));
  std::vector<char> donated(spec.inputs.size(), 0);
  for (const uint32_t position : arguments.donated) donated[position] = 1;
  for (const InPlaceArguments::Change& change : arguments.changes) {
    if (change.before && donated[change.position]) change.before->GiveUp();
  }
  for (const InPlaceArguments::Argument& argument : arguments.arguments) {
    if (donated[argument.position]) argument.value.GiveUp();
  }
  return result;
}

}  // namespace pathways::client
