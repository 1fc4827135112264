#include "csrc/plugin/replay.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "csrc/plugin/client.h"

namespace pathways::plugin {
namespace {

Result<std::vector<PJRT_Device*>> DevicesOf(const ClientState& client, const std::vector<uint32_t>& numbers) {
  std::vector<PJRT_Device*> found;
  for (uint32_t number : numbers) {
    for (PJRT_Device* device : client.devices()) {
      if (device->cluster_device == number) found.push_back(device);
    }
  }
  if (found.size() == numbers.size()) return found;
  return InvalidArgument("a captured step names a device that this client does not have");
}

}  // namespace

Result<client::RunResult> Replay::Launch(const ClientState& client, const std::shared_ptr<client::Program>& program,
                                         const Ports& ports, const Values& values, std::vector<uint32_t> donated) {
  std::vector<client::ProgramArgument> arguments;
  arguments.reserve(ports.size());
  for (const Port& port : ports) {
    PW_ASSIGN_OR_RETURN(client::ProgramArgument argument, ArgumentOf(RowOf(values, port)));
    arguments.push_back(std::move(argument));
  }
  if (program->session() != client.session()) return LeftCluster(*program);
  std::erase_if(donated, [&](uint32_t position) { return !IsWhole(arguments[position]); });
  return client.session()->RunProgram(program, arguments, donated);
}

Result<std::shared_ptr<Replay>> Replay::Create(std::shared_ptr<ClientState> client,
                                               std::shared_ptr<client::Program> program,
                                               std::vector<ReplayInput> inputs, std::vector<ReplayOutput> outputs,
                                               size_t states, size_t feeds) {
  const client::ProgramSpec& spec = program->spec();
  if (inputs.size() != spec.inputs.size() || outputs.size() != spec.outputs.size()) {
    return InvalidArgument("expected a source for each of the program's " + std::to_string(spec.inputs.size()) +
                           " arguments and a place for each of its " + std::to_string(spec.outputs.size()) +
                           " results, got " + std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
  }
  std::shared_ptr<Replay> replay(new Replay);
  std::set<uint32_t> ids;
  const auto add = [&](const client::Port& of, Ports& ports) -> Status {
    PW_ASSIGN_OR_RETURN(std::vector<PJRT_Device*> devices, DevicesOf(*client, of.devices));
    for (const PJRT_Device* device : devices) ids.insert(static_cast<uint32_t>(device->description.id));
    const size_t first = ports.empty() ? 0 : ports.back().first + ports.back().devices.size();
    ports.push_back({std::move(devices), std::make_shared<const ArrayType>(of.shard_type), first});
    return OkStatus();
  };
  for (const client::Port& input : spec.inputs) PW_RETURN_IF_ERROR(add(input, *replay->input_ports_));
  for (const client::Port& output : spec.outputs) PW_RETURN_IF_ERROR(add(output, *replay->output_ports_));
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
  replay->client_ = std::move(client);
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
      places.push_back({port.devices, port.type});
    }
    return &places[place_of_[state]];
  };
  for (size_t position = 0; position < inputs_.size(); ++position) {
    const ReplayInput& input = inputs_[position];
    const Port& port = (*input_ports_)[position];
    Residents::Place* place = nullptr;
    if (input.kind == ReplayInput::Kind::kConstant) {
      place = &places.emplace_back(Residents::Place{port.devices, port.type});
      place->constant = input.constant;
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
    const Port& port = (*output_ports_)[k];
    Residents::Place* place = sole_state(outputs_[k]) ? place_of(outputs_[k].states[0], port) : nullptr;
    // What is read there must be what was put there.
    if (place != nullptr && place->devices == port.devices && place->type->type == port.type->type) {
      place->result = k;
    } else {
      named_results_.push_back(k);
    }
  }
  residents_ = std::make_shared<Residents>(client_, program_, std::move(places));
}

Status Replay::Bind(size_t index, std::span<const std::shared_ptr<BufferCell>> cells) {
  if (index >= cells_.size()) {
    return InvalidArgument("expected a state below " + std::to_string(cells_.size()) + ", got " +
                           std::to_string(index));
  }
  cells_[index].assign(cells.begin(), cells.end());
  if (place_of_[index] != Residents::kNowhere) residents_->Bind(place_of_[index], cells);
  return OkStatus();
}

Status Replay::Gather(size_t position, std::span<const ReplayFeed> feeds, Values& values) const {
  const ReplayInput& input = inputs_[position];
  const Port& port = (*input_ports_)[position];
  if (input.kind == ReplayInput::Kind::kConstant) {
    values.insert(values.end(), input.constant.begin(), input.constant.end());
    return OkStatus();
  }
  if (input.kind == ReplayInput::Kind::kState) {
    for (const std::weak_ptr<BufferCell>& place : cells_[input.index]) {
      const std::shared_ptr<BufferCell> cell = place.lock();
      std::shared_ptr<Value> value = cell != nullptr ? cell->value() : nullptr;
      if (value == nullptr) {
        return FailedPrecondition("the buffer of state " + std::to_string(input.index) + " is gone");
      }
      values.push_back(std::move(value));
    }
    return OkStatus();
  }
  const ReplayFeed& feed = feeds[input.index];
  if (feed.bytes.empty()) {
    values.insert(values.end(), feed.values.begin(), feed.values.end());
    return OkStatus();
  }
  if (feed.bytes.size() != 1 && feed.bytes.size() != port.devices.size()) {
    return InvalidArgument("expected the bytes of 1 or " + std::to_string(port.devices.size()) + " shards for feed " +
                           std::to_string(input.index) + ", got those of " + std::to_string(feed.bytes.size()));
  }
  for (size_t i = 0; i < port.devices.size(); ++i) {
    const std::span<const std::byte> bytes = feed.bytes[feed.bytes.size() == 1 ? 0 : i];
    if (bytes.size() != static_cast<size_t>(port.type->type.ByteSize())) {
      return InvalidArgument("expected " + std::to_string(port.type->type.ByteSize()) + " bytes for feed " +
                             std::to_string(input.index) + " (" + port.type->type.ToString() + "), got " +
                             std::to_string(bytes.size()));
    }
    PJRT_Device* const device = port.devices[i];
    PW_ASSIGN_OR_RETURN(client::Shard shard,
                        client_->session()->Put(device->cluster_device, port.type->type, bytes.data()));
    values.push_back(std::make_shared<Value>(client_, device, std::move(shard)));
  }
  return OkStatus();
}

Status Replay::Check(size_t position, Row row) const {
  const Port& port = (*input_ports_)[position];
  bool right = row.size() == port.devices.size();
  for (size_t i = 0; right && i < row.size(); ++i) {
    right = row[i]->type() == port.type->type && row[i]->device() == port.devices[i];
  }
  if (right) return OkStatus();
  return FailedPrecondition(
      "argument " + std::to_string(position) + " of a captured step must be " + port.type->type.ToString() + " on " +
      port.devices[0]->description.to_string +
      (row.empty() ? ", got nothing"
                   : ", got " + row[0]->type().ToString() + " on " + row[0]->device()->description.to_string));
}

std::vector<uint32_t> Replay::Donated(const Values& values) const {
  std::vector<uint32_t> donated;
  std::set<const Value*> fed;  // what the caller passes may be state, too
  for (size_t position = 0; position < inputs_.size(); ++position) {
    if (inputs_[position].kind != ReplayInput::Kind::kFeed) continue;
    for (const auto& value : RowOf(values, (*input_ports_)[position])) fed.insert(value.get());
  }
  for (size_t position = 0; position < inputs_.size(); ++position) {
    if (MayGive(position, RowOf(values, (*input_ports_)[position]), fed))
      donated.push_back(static_cast<uint32_t>(position));
  }
  return donated;
}

Result<std::vector<std::shared_ptr<Value>>> Replay::Run(std::span<const ReplayFeed> feeds) {
  if (feeds.size() != feeds_) {
    return InvalidArgument("expected " + std::to_string(feeds_) + " feeds, got " + std::to_string(feeds.size()));
  }
  if (program_->session() != client_->session()) return LeftCluster(*program_);  // before anything is sent
  if (client_->sequencer().is_idle()) return RunResident(feeds);
  residents_->Release();
  return RunHeld(feeds);
}

Result<std::vector<std::shared_ptr<Value>>> Replay::RunResident(std::span<const ReplayFeed> feeds) {
  Values values;
  std::vector<client::InPlaceArguments::Argument> arguments;
  std::vector<size_t> first;  // of each named argument's values
  for (const size_t position : named_arguments_) {
    first.push_back(values.size());
    PW_RETURN_IF_ERROR(Gather(position, feeds, values));
    PW_RETURN_IF_ERROR(Check(position, Row(values).subspan(first.back())));
  }
  std::set<const Value*> fed;  // what the caller passes may be state, too
  for (size_t i = 0; i < named_arguments_.size(); ++i) {
    if (inputs_[named_arguments_[i]].kind != ReplayInput::Kind::kFeed) continue;
    for (const auto& value : RowOf(values, first[i], named_arguments_[i])) fed.insert(value.get());
  }
  std::vector<uint32_t> donated;
  Residents::Submitted submitted;
  for (size_t i = 0; i < named_arguments_.size(); ++i) {
    const size_t position = named_arguments_[i];
    const Row row = RowOf(values, first[i], position);
    Result<client::ProgramArgument> argument = ArgumentOf(row);
    if (!argument.ok()) {  // it failed long ago; so does all that follows from it
      submitted.status = argument.status();
      break;
    }
    if (MayGive(position, row, fed) && IsWhole(*argument)) donated.push_back(static_cast<uint32_t>(position));
    arguments.push_back({position, *std::move(argument)});
  }
  if (submitted.status.ok()) {
    PW_ASSIGN_OR_RETURN(submitted, residents_->Run(std::move(arguments), std::move(donated), fed));
  } else {
    residents_->Fail(submitted.status);
  }
  Values returned;
  for (size_t k = 0; k < named_results_.size(); ++k) {
    const Port& port = (*output_ports_)[named_results_[k]];
    Values row;
    for (size_t i = 0; i < port.devices.size(); ++i) {
      row.push_back(std::make_shared<Value>(client_, port.devices[i], port.type));
      row.back()->Resolve(submitted.status.ok()
                              ? Result<client::Shard>(client::Shard{submitted.outputs[k], static_cast<uint32_t>(i)})
                              : Result<client::Shard>(submitted.status));
    }
    Put(named_results_[k], row, returned);
  }
  return returned;
}

// Puts a result into the cells of its states, and among what is returned.
void Replay::Put(size_t result, Row row, Values& returned) const {
  for (const size_t state : outputs_[result].states) {
    for (size_t i = 0; i < row.size() && i < cells_[state].size(); ++i) {
      if (const std::shared_ptr<BufferCell> cell = cells_[state][i].lock()) cell->Replace(row[i]);
    }
  }
  if (outputs_[result].returned) returned.insert(returned.end(), row.begin(), row.end());
}

bool Replay::MayGive(size_t position, Row row, const std::set<const Value*>& fed) const {
  const ReplayInput& input = inputs_[position];
  if (!input.may_donate || input.kind == ReplayInput::Kind::kConstant) return false;
  return std::all_of(row.begin(), row.end(), [&](const auto& value) {
    return value->HasOneHolder() && (input.kind == ReplayInput::Kind::kFeed || !fed.contains(value.get()));
  });
}

Result<std::vector<std::shared_ptr<Value>>> Replay::RunHeld(std::span<const ReplayFeed> feeds) {
  Values arguments;
  arguments.reserve(inputs_.size());
  for (size_t position = 0; position < inputs_.size(); ++position) {
    const size_t first = arguments.size();
    PW_RETURN_IF_ERROR(Gather(position, feeds, arguments));
    PW_RETURN_IF_ERROR(Check(position, Row(arguments).subspan(first)));
  }
  std::vector<uint32_t> donated = Donated(arguments);

  Values results;
  results.reserve(outputs_.size());
  Values returned;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const Port& port = (*output_ports_)[k];
    for (PJRT_Device* device : port.devices) {
      results.push_back(std::make_shared<Value>(client_, device, port.type));
    }
    Put(k, RowOf(results, port), returned);
  }
  auto launch = [client = client_, program = program_, inputs = input_ports_, outputs = output_ports_,
                 arguments = std::move(arguments), results = std::move(results), donated = std::move(donated)] {
    Result<client::RunResult> run = Launch(*client, program, *inputs, arguments, donated);
    for (size_t k = 0; k < outputs->size(); ++k) {
      const Row row = RowOf(results, (*outputs)[k]);
      for (size_t i = 0; i < row.size(); ++i) {
        row[i]->Resolve(run.ok() ? Result<client::Shard>(client::Shard{run->outputs[k], static_cast<uint32_t>(i)})
                                 : Result<client::Shard>(run.status()));
      }
    }
  };
  client_->sequencer().Submit(device_ids_, std::move(launch));
  return returned;
}

}  // namespace pathways::plugin
