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

// One whole logical buffer if the shards are exactly that, in order; else the shards one by one.
Result<client::ProgramArgument> ArgumentOf(std::span<const std::shared_ptr<Value>> row) {
  if (row.size() == 1) {  // as nearly always, and there may be thousands
    const Result<client::Shard>& shard = row[0]->shard();
    PW_RETURN_IF_ERROR(shard.status());
    if (shard->buffer->devices().size() == 1) return client::ProgramArgument{shard->buffer, {}};
  }
  client::ProgramArgument argument;
  for (const std::shared_ptr<Value>& value : row) {
    const Result<client::Shard>& shard = value->shard();
    PW_RETURN_IF_ERROR(shard.status());
    argument.shards.push_back(*shard);
  }
  const std::shared_ptr<client::LogicalBuffer>& buffer = argument.shards[0].buffer;
  bool whole = buffer->devices().size() == argument.shards.size();
  for (size_t i = 0; i < argument.shards.size(); ++i) {
    whole = whole && argument.shards[i].buffer == buffer && argument.shards[i].index == i;
  }
  if (whole) return client::ProgramArgument{buffer, {}};
  return argument;
}

// Whether a run can be given all of this: a shard of a buffer whose other shards live on elsewhere cannot go alone.
bool IsWhole(const client::ProgramArgument& argument) {
  return argument.buffer != nullptr ||
         std::all_of(argument.shards.begin(), argument.shards.end(),
                     [](const client::Shard& shard) { return shard.buffer->devices().size() == 1; });
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
  return replay;
}

Status Replay::Bind(size_t index, std::span<const std::shared_ptr<BufferCell>> cells) {
  if (index >= cells_.size()) {
    return InvalidArgument("expected a state below " + std::to_string(cells_.size()) + ", got " +
                           std::to_string(index));
  }
  cells_[index].assign(cells.begin(), cells.end());
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
    const ReplayInput& input = inputs_[position];
    if (!input.may_donate || input.kind == ReplayInput::Kind::kConstant) continue;
    const Row row = RowOf(values, (*input_ports_)[position]);
    const bool sole = std::all_of(row.begin(), row.end(), [&](const auto& value) {
      return value->HasOneHolder() && (input.kind == ReplayInput::Kind::kFeed || !fed.contains(value.get()));
    });
    if (sole) donated.push_back(static_cast<uint32_t>(position));
  }
  return donated;
}

Result<std::vector<std::shared_ptr<Value>>> Replay::Run(std::span<const ReplayFeed> feeds) {
  if (feeds.size() != feeds_) {
    return InvalidArgument("expected " + std::to_string(feeds_) + " feeds, got " + std::to_string(feeds.size()));
  }
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
    const Row row = RowOf(results, port);
    for (size_t state : outputs_[k].states) {
      for (size_t i = 0; i < row.size() && i < cells_[state].size(); ++i) {
        if (const std::shared_ptr<BufferCell> cell = cells_[state][i].lock()) cell->Replace(row[i]);
      }
    }
    if (outputs_[k].returned) returned.insert(returned.end(), row.begin(), row.end());
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
