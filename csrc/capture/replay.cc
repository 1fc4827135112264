#include "csrc/capture/replay.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "csrc/values/client.h"
#include "csrc/values/upload.h"

namespace pathways::capture {
namespace {

// What the values of a port are like, which must be what the program has there.
Result<Port> PortOf(const values::ValuePtr& like, const client::Port& of) {
  Port port = Port::Of(*like);
  if (port.shard_type() == of.shard_type && *port.devices == of.devices) return port;
  return InvalidArgument("a captured step has shards " + of.shard_type.ToString() + " where " + port.ToString() +
                         " was recorded");
}

}  // namespace

Result<client::RunResult> Replay::Launch(const values::ClientState& client,
                                         const std::shared_ptr<client::Program>& program, const Values& values,
                                         std::vector<uint32_t> donated) {
  std::vector<client::ProgramArgument> arguments;
  arguments.reserve(values.size());
  for (const values::ValuePtr& value : values) {
    PW_ASSIGN_OR_RETURN(client::ProgramArgument argument, value->argument());
    arguments.push_back(std::move(argument));
  }
  if (program->session() != client.session()) return LeftCluster(*program);
  std::erase_if(donated, [&](uint32_t position) { return !IsWhole(arguments[position]); });
  return client.session()->program_runs().Run(program, arguments, donated);
}

Result<std::shared_ptr<Replay>> Replay::Create(std::shared_ptr<client::Program> program,
                                               std::vector<ReplayInput> inputs, std::vector<ReplayOutput> outputs,
                                               size_t states, size_t feeds) {
  const client::ProgramSpec& spec = program->spec();
  if (inputs.size() != spec.inputs.size() || outputs.size() != spec.outputs.size()) {
    return InvalidArgument("expected a source for each of the program's " + std::to_string(spec.inputs.size()) +
                           " arguments and a place for each of its " + std::to_string(spec.outputs.size()) +
                           " results, got " + std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
  }
  if (inputs.empty() && outputs.empty()) return InvalidArgument("a captured step has no arguments and no results");
  std::shared_ptr<Replay> replay(new Replay);
  std::set<uint32_t> ids;
  const auto add = [&](values::ValuePtr& like, const client::Port& of, Ports& ports) -> Status {
    PW_ASSIGN_OR_RETURN(Port port, PortOf(like, of));
    ids.insert(static_cast<uint32_t>(port.device->description.id));
    ports.push_back(std::move(port));
    return OkStatus();
  };
  replay->client_ = (inputs.empty() ? outputs[0].like : inputs[0].like)->client();
  for (size_t i = 0; i < inputs.size(); ++i) {
    PW_RETURN_IF_ERROR(add(inputs[i].like, spec.inputs[i], replay->input_ports_));
    if (inputs[i].kind != ReplayInput::Kind::kConstant) inputs[i].like.reset();  // its device needs the memory
    replay->all_arguments_.push_back(i);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    PW_RETURN_IF_ERROR(add(outputs[k].like, spec.outputs[k], replay->output_ports_));
    outputs[k].like.reset();
    replay->all_results_.push_back(k);
  }
  for (const ReplayInput& input : inputs) {
    const size_t bound = input.kind == ReplayInput::Kind::kState ? states : feeds;
    if (input.kind != ReplayInput::Kind::kConstant && input.index >= bound) {
      return InvalidArgument("a captured step reads state or feed " + std::to_string(input.index) + " of " +
                             std::to_string(bound));
    }
  }
  for (const ReplayOutput& output : outputs) {
    for (size_t state : output.states) {
      if (state >= states) {
        return InvalidArgument("a captured step writes state " + std::to_string(state) + " of " +
                               std::to_string(states));
      }
    }
  }
  replay->program_ = std::move(program);
  replay->inputs_ = std::move(inputs);
  replay->outputs_ = std::move(outputs);
  replay->device_ids_.assign(ids.begin(), ids.end());
  replay->cells_.resize(states);
  replay->feeds_ = feeds;
  replay->MakePlaces(states);
  return replay;
}

Replay::~Replay() {
  if (residents_ != nullptr) residents_->Release();
}

void Replay::MakePlaces(size_t states) {
  std::vector<size_t> read(states, 0), written(states, 0);
  for (const ReplayInput& input : inputs_) {
    if (input.kind == ReplayInput::Kind::kState) ++read[input.index];
  }
  const auto sole_state = [](const ReplayOutput& output) { return output.states.size() == 1 && !output.returned; };
  for (const ReplayOutput& output : outputs_) {
    for (const size_t state : output.states) written[state] += sole_state(output) ? 1 : 2;
  }
  std::vector<Residents::Place> places;
  place_of_.assign(states, Residents::kNowhere);
  const auto place_of = [&](size_t state, const Port& port) -> Residents::Place* {
    if (read[state] > 1 || written[state] > 1) return nullptr;
    if (place_of_[state] == Residents::kNowhere) {
      place_of_[state] = places.size();
      places.push_back({.port = port});
    }
    return &places[place_of_[state]];
  };
  for (size_t position = 0; position < inputs_.size(); ++position) {
    const ReplayInput& input = inputs_[position];
    const Port& port = input_ports_[position];
    Residents::Place* place = nullptr;
    if (input.kind == ReplayInput::Kind::kConstant) {
      place = &places.emplace_back(Residents::Place{.port = port, .constant = input.like});
    } else if (input.kind == ReplayInput::Kind::kState) {
      place = place_of(input.index, port);
    }
    if (place == nullptr) {
      named_arguments_.push_back(position);
      continue;
    }
    place->argument = position;
    place->may_donate = input.may_donate;
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const Port& port = output_ports_[k];
    Residents::Place* place = sole_state(outputs_[k]) ? place_of(outputs_[k].states[0], port) : nullptr;
    // What is read there must be what was put there.
    if (place != nullptr && place->port.IsAs(port)) {
      place->result = k;
    } else {
      named_results_.push_back(k);
    }
  }
  residents_ = std::make_shared<Residents>(client_, program_, std::move(places));
}

Status Replay::Bind(size_t index, const std::shared_ptr<values::BufferCell>& cell) {
  if (index >= cells_.size()) {
    return InvalidArgument("expected a state below " + std::to_string(cells_.size()) + ", got " +
                           std::to_string(index));
  }
  cells_[index] = cell;
  if (place_of_[index] != Residents::kNowhere) residents_->Bind(place_of_[index], cell);
  return OkStatus();
}

Status Replay::CheckStates() const {
  for (size_t position = 0; position < inputs_.size(); ++position) {
    if (inputs_[position].kind != ReplayInput::Kind::kState) continue;
    const std::shared_ptr<values::BufferCell> cell = cells_[inputs_[position].index].lock();
    const values::ValuePtr value = cell != nullptr ? cell->value() : nullptr;
    if (value != nullptr) PW_RETURN_IF_ERROR(input_ports_[position].Check(value.get(), position));
  }
  return OkStatus();
}

Result<Replay::Values> Replay::Gather(std::span<const size_t> positions, std::span<const ReplayFeed> feeds) const {
  Values values;
  values.reserve(positions.size());
  for (const size_t position : positions) {
    PW_ASSIGN_OR_RETURN(values::ValuePtr value, Find(position, feeds));
    PW_RETURN_IF_ERROR(input_ports_[position].Check(value.get(), position));
    values.push_back(std::move(value));
  }
  return values;
}

Result<values::ValuePtr> Replay::Find(size_t position, std::span<const ReplayFeed> feeds) const {
  const ReplayInput& input = inputs_[position];
  if (input.kind == ReplayInput::Kind::kConstant) return input.like;
  if (input.kind == ReplayInput::Kind::kState) {
    const std::shared_ptr<values::BufferCell> cell = cells_[input.index].lock();
    return cell != nullptr ? cell->value() : nullptr;
  }
  const ReplayFeed& feed = feeds[input.index];
  return feed.value != nullptr ? feed.value : Upload(position, feed.bytes);
}

Result<values::ValuePtr> Replay::Upload(size_t position, std::span<const std::byte> bytes) const {
  const Port& port = input_ports_[position];
  const TensorType& type = port.type->type;
  if (bytes.size() != static_cast<size_t>(type.ByteSize())) {
    return InvalidArgument("expected " + std::to_string(type.ByteSize()) + " bytes for feed " +
                           std::to_string(inputs_[position].index) + " (" + type.ToString() + "), got " +
                           std::to_string(bytes.size()));
  }
  const values::DeviceListPtr bound = port.device->devices();
  if (bound == nullptr || (bound != port.devices && *bound != *port.devices)) {
    return FailedPrecondition("argument " + std::to_string(position) + " of a captured step must be " +
                              port.ToString() + ", but that device stands for another slice now");
  }
  return values::UploadValue(client_, port.device, type, bytes.data(), port.tiling);
}

std::set<const values::Value*> Replay::Fed(std::span<const size_t> positions, const Values& values) const {
  std::set<const values::Value*> fed;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (inputs_[positions[i]].kind == ReplayInput::Kind::kFeed) fed.insert(values[i].get());
  }
  return fed;
}

Result<std::vector<values::ValuePtr>> Replay::Run(std::span<const ReplayFeed> feeds) {
  if (feeds.size() != feeds_) {
    return InvalidArgument("expected " + std::to_string(feeds_) + " feeds, got " + std::to_string(feeds.size()));
  }
  if (program_->session() != client_->session()) return LeftCluster(*program_);  // before anything is sent
  if (client_->sequencer().is_idle()) return RunResident(feeds);
  residents_->Release();
  return RunHeld(feeds);
}

Result<Replay::Values> Replay::RunResident(std::span<const ReplayFeed> feeds) {
  PW_RETURN_IF_ERROR(CheckTake(named_results_));
  PW_ASSIGN_OR_RETURN(const Values values, Gather(named_arguments_, feeds));
  const std::set<const values::Value*> fed = Fed(named_arguments_, values);
  std::vector<client::InPlaceArguments::Argument> arguments;
  std::vector<uint32_t> donated;
  Residents::Submitted submitted;
  for (size_t i = 0; i < named_arguments_.size(); ++i) {
    const size_t position = named_arguments_[i];
    Result<client::ProgramArgument> argument = values[i]->argument();
    if (!argument.ok()) {  // it failed long ago; so does all that follows from it
      submitted.status = argument.status();
      break;
    }
    if (MayGive(position, *values[i], fed) && IsWhole(*argument)) donated.push_back(static_cast<uint32_t>(position));
    arguments.push_back({position, *std::move(argument)});
  }
  if (submitted.status.ok()) {
    PW_ASSIGN_OR_RETURN(submitted, residents_->Run(std::move(arguments), std::move(donated), fed));
  } else {
    residents_->Fail(submitted.status);
  }
  Values returned;
  for (size_t k = 0; k < named_results_.size(); ++k) {
    const Port& port = output_ports_[named_results_[k]];
    Put(named_results_[k],
        submitted.status.ok() ? port.NewValue(client_, submitted.outputs[k]) : port.NewValue(client_, submitted.status),
        returned);
  }
  return returned;
}

Status Replay::CheckTake(std::span<const size_t> positions) const {
  for (const size_t position : positions) {
    for (const size_t state : outputs_[position].states) PW_RETURN_IF_ERROR(values::CheckTakes(cells_[state].lock()));
  }
  return OkStatus();
}

// Puts a result into the cells of its states, and among what is returned.
void Replay::Put(size_t result, const values::ValuePtr& value, Values& returned) const {
  for (const size_t state : outputs_[result].states) {
    if (const std::shared_ptr<values::BufferCell> cell = cells_[state].lock()) cell->Replace(value);
  }
  if (outputs_[result].returned) returned.push_back(value);
}

bool Replay::MayGive(size_t position, const values::Value& value, const std::set<const values::Value*>& fed) const {
  const ReplayInput& input = inputs_[position];
  if (!input.may_donate || input.kind == ReplayInput::Kind::kConstant) return false;
  return value.HasOneHolder() && (input.kind == ReplayInput::Kind::kFeed || !fed.contains(&value));
}

Result<Replay::Values> Replay::RunHeld(std::span<const ReplayFeed> feeds) {
  PW_RETURN_IF_ERROR(CheckTake(all_results_));
  PW_ASSIGN_OR_RETURN(Values arguments, Gather(all_arguments_, feeds));
  const std::set<const values::Value*> fed = Fed(all_arguments_, arguments);
  std::vector<uint32_t> donated;
  for (size_t position = 0; position < arguments.size(); ++position) {
    if (MayGive(position, *arguments[position], fed)) donated.push_back(static_cast<uint32_t>(position));
  }
  Values results;
  Values returned;
  results.reserve(outputs_.size());
  for (size_t k = 0; k < outputs_.size(); ++k) {
    results.push_back(output_ports_[k].NewValue(client_));
    Put(k, results.back(), returned);
  }
  auto launch = [client = client_, program = program_, arguments = std::move(arguments), results = std::move(results),
                 donated = std::move(donated)] {
    Result<client::RunResult> run = Launch(*client, program, arguments, donated);
    for (size_t k = 0; k < results.size(); ++k) {
      results[k]->Resolve(run.ok() ? Result<client::Shard>(client::Shard{run->outputs[k], 0})
                                   : Result<client::Shard>(run.status()));
    }
  };
  client_->sequencer().Submit(device_ids_, std::move(launch));
  return returned;
}

}  // namespace pathways::capture
