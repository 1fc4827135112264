// Executing: from one call of the caller to runs of the session.
//
// Nothing here waits for devices: results are values whose runs are submitted, or which wait in the sequencer for the
// other devices of their gang. What goes wrong after the arguments have been checked becomes the value of the results.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "csrc/capture/recorder.h"
#include "csrc/compiled/length_program.h"
#include "csrc/hlo/summary.h"
#include "csrc/plugin/device.h"
#include "csrc/plugin/entry.h"
#include "csrc/plugin/event.h"
#include "csrc/plugin/handles.h"
#include "csrc/values/buffer.h"
#include "csrc/values/upload.h"

namespace pathways::plugin {
namespace {

using ProgramPtr = std::shared_ptr<const compiled::Program>;

// One device's part of an execution.
struct Row {
  PJRT_Device* device = nullptr;
  PJRT_Device::DeviceListPtr bound;                      // at the time of the call
  std::shared_ptr<const compiled::SliceProgram> sliced;  // for a slice of several devices, if it could be compiled
  bool lengthened = false;                               // runs on Program::lengthened
  std::vector<values::ValuePtr> arguments;
  std::vector<values::ValuePtr> results;
  std::shared_ptr<Event> done;
};

struct ReplicaCall final : values::GangCall {
  ProgramPtr program;
  Row row_of_values;
  std::vector<uint32_t> donated;
};

void Fail(Row& row, const Status& status) {
  for (const auto& result : row.results) result->Resolve(status);
  if (!row.results.empty()) row.results[0]->client()->session()->runs().NoteFailure(status);
  row.done->Set(status);
}

// Of `donated`, the positions where the rows of a gang hold whole logical buffers: a shard of one whose other shards
// live on elsewhere cannot be given up alone.
std::vector<uint32_t> WholeBuffers(const std::vector<uint32_t>& donated,
                                   const std::vector<std::vector<client::Shard>>& rows) {
  std::vector<uint32_t> whole;
  for (uint32_t position : donated) {
    const std::shared_ptr<client::LogicalBuffer>& first = rows[0][position].buffer;
    bool each_alone = true;
    bool one_for_all = first->devices().size() == rows.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      const client::Shard& shard = rows[i][position];
      each_alone = each_alone && shard.buffer->devices().size() == 1;
      one_for_all = one_for_all && shard.buffer == first && shard.index == i;
    }
    if (each_alone || one_for_all) whole.push_back(position);
  }
  return whole;
}

Status OfFormerCluster(const client::Shard& shard) {
  return FailedPrecondition("a tensor " + shard.type().ToString() + " belongs to cluster '" +
                            shard.buffer->session()->cluster() +
                            "', which this process has left; make it anew in the cluster of now: run the code that "
                            "builds the model, the optimizer and the data again");
}

bool LiesOn(const values::Value& value, const PJRT_Device::DeviceListPtr& devices) {
  return value.device_list() == devices || value.devices() == *devices;
}

// The caller keeps uploaded numbers and uses them again. In the cluster of now, or the slice of now, they are uploaded
// anew, into the place of the old ones.
Status RenewNumber(const client::Session& session, const std::shared_ptr<values::BufferCell>& cell,
                   const PJRT_Device::DeviceListPtr& devices, values::ValuePtr& value) {
  if (!value->scalar()) return OkStatus();
  const Result<client::Shard>& shard = value->shard();
  if (!shard.ok()) return OkStatus();
  if (shard->buffer->session().get() == &session && LiesOn(*value, devices)) return OkStatus();
  const uint64_t bits = *value->scalar();
  PW_ASSIGN_OR_RETURN(value, values::UploadValue(value->client(), value->device(), value->type(), &bits,
                                                 values::UploadTiling(value->type(), devices->size())));
  cell->Replace(value);
  return OkStatus();
}

// Submits a run over a slice of several devices and resolves its results.
void LaunchOnSlice(const ProgramPtr& program, const compiled::SliceProgram& sliced, Row& row,
                   const std::vector<uint32_t>& donated) {
  const std::shared_ptr<client::Session> session = program->client()->session();
  std::vector<std::shared_ptr<client::LogicalBuffer>> arguments;
  Status status;
  for (const auto& argument : row.arguments) {
    const Result<client::Shard>& shard = argument->shard();
    status = !shard.ok()                           ? shard.status()
             : shard->buffer->session() != session ? OfFormerCluster(*shard)
                                                   : shard->buffer->CheckHeld();
    if (!status.ok()) return Fail(row, status);
    arguments.push_back(shard->buffer);
  }
  Result<client::RunResult> submitted =
      session->runs().Run(sliced.function, {.devices = *sliced.devices, .whole = arguments, .donated = donated});
  if (!submitted.ok()) return Fail(row, submitted.status());
  for (size_t k = 0; k < row.results.size(); ++k) row.results[k]->Resolve(client::Shard{submitted->outputs[k], 0});
  submitted->done->OnReady([done = row.done](const Status& outcome) { done->Set(outcome); });
}

// Submits a run of the computation for all lengths.
void LaunchLengthened(const ProgramPtr& program, Row& row, const std::vector<uint32_t>& donated) {
  const Result<std::vector<values::ValuePtr>> scalars = program->length.On(program->client(), row.device, row.bound);
  if (!scalars.ok()) return Fail(row, scalars.status());
  const Result<client::RunResult> submitted =
      program->lengthened->Run(*program, row.bound, row.arguments, *scalars, donated);
  if (!submitted.ok()) return Fail(row, submitted.status());
  program->lengthened->Resolve(program, *submitted, row.results);
  submitted->done->OnReady([done = row.done](const Status& outcome) { done->Set(outcome); });
}

// Submits one run over all rows and resolves their results.
void Launch(const ProgramPtr& program, std::span<Row*> rows, const std::vector<uint32_t>& donated) {
  std::vector<uint32_t> devices;
  std::vector<std::vector<client::Shard>> arguments;  // by row
  Status status;
  const std::shared_ptr<client::Session> session = program->client()->session();
  for (Row* row : rows) {
    devices.push_back(row->bound->front());
    auto& shards = arguments.emplace_back();
    shards.reserve(row->arguments.size());
    for (const auto& argument : row->arguments) {
      const Result<client::Shard>& shard = argument->shard();
      if (!shard.ok()) {
        status = shard.status();
        break;
      }
      if (shard->buffer->session() != session) {
        status = OfFormerCluster(*shard);
        break;
      }
      status = shard->buffer->CheckHeld();
      if (!status.ok()) break;
      shards.push_back(*shard);
    }
  }
  client::RunResult result;
  if (status.ok()) {
    const std::vector<uint32_t> whole = WholeBuffers(donated, arguments);
    const Result<std::shared_ptr<client::Function>> function = program->Registered();
    Result<client::RunResult> submitted =
        function.ok() ? session->runs().Run(*function, {.devices = devices, .arguments = arguments, .donated = whole})
                      : Result<client::RunResult>(function.status());
    if (submitted.ok()) {
      result = *std::move(submitted);
    } else {
      status = submitted.status();
    }
  }
  if (status.ok() && result.outputs.size() != program->results.size()) {
    status = Internal(program->What() + ": expected " + std::to_string(program->results.size()) + " results, got " +
                      std::to_string(result.outputs.size()));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = *rows[i];
    if (!status.ok()) {
      Fail(row, status);
      continue;
    }
    for (size_t k = 0; k < row.results.size(); ++k) {
      row.results[k]->Resolve(client::Shard{result.outputs[k], static_cast<uint32_t>(i)});
    }
    result.done->OnReady([done = row.done](const Status& outcome) { done->Set(outcome); });
  }
}

// "xla:2 (devices 0, 1)"
std::string NameOf(const PJRT_Device& device) {
  if (!device.client->is_logical()) return device.description.to_string;
  std::string text = "xla:" + std::to_string(device.description.id);
  const PJRT_Device::DeviceListPtr devices = device.devices();
  if (devices == nullptr) return text + " (released)";
  text += devices->size() == 1 ? " (device " : " (devices ";
  for (size_t i = 0; i < devices->size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string((*devices)[i]);
  return text + ")";
}

// Argument `index` is on another logical device than the program executes on.
Status TwoSlices(const compiled::Program& program, PJRT_Device* device, PJRT_Buffer* const* arguments, size_t count,
                 size_t index) {
  std::vector<int64_t> places(count, -1);
  std::map<int64_t, const PJRT_Device*> devices;
  for (size_t i = 0; i < count; ++i) {
    if (arguments[i] == nullptr) continue;
    places[i] = arguments[i]->device->description.id;
    devices[places[i]] = arguments[i]->device;
  }
  const std::string& module = program.callers_module.empty() ? program.spec.module : program.callers_module;
  const Result<hlo::Meeting> met = hlo::FirstMeeting(module, places);  // of an HLO module
  const PJRT_Buffer& buffer = *arguments[index];
  std::string text;
  if (met.ok() && !met->opcode.empty()) {
    text = "in " + program.What() + ", '" + met->opcode + "'" + (met->source.empty() ? "" : " (" + met->source + ")") +
           " takes tensors of two slices: " + met->types[0] + " on " + NameOf(*devices[met->places[0]]) + ", and " +
           met->types[1] + " on " + NameOf(*devices[met->places[1]]);
  } else {
    text = "argument " + std::to_string(index) + " of " + program.What() + ", " + buffer.type.ToString() +
           ", lies on " + NameOf(*buffer.device) + ", but it executes on " + NameOf(*device);
  }
  text += ": the operands of an operation lie on one slice; move one with tensor.to(slice.device)";
  // PyTorch/XLA keeps the operations' lines when it is asked to, and that takes time.
  if (met.ok() && !met->opcode.empty() && met->source.empty()) {
    text += "; with XLA_IR_DEBUG=1 in the environment this message names the operation's line";
  }
  return InvalidArgument(text);
}

// The arguments of one row, checked.
Result<Row> ReadRow(const compiled::Program& program, PJRT_Device* device, PJRT_Buffer* const* arguments,
                    size_t count) {
  Row row;
  row.device = device;
  PW_ASSIGN_OR_RETURN(row.bound, device->Bound());
  row.arguments.reserve(count);
  const std::shared_ptr<client::Session> session = program.client()->session();
  for (size_t i = 0; i < count; ++i) {
    const PJRT_Buffer* const buffer = arguments[i];
    const auto which = [&] { return "argument " + std::to_string(i) + " of " + program.What(); };
    if (buffer == nullptr) return InvalidArgument(which() + " is null");
    if (buffer->device != device) return TwoSlices(program, device, arguments, count, i);
    if (program.parameters && program.partitions == 1 && (*program.parameters)[i] != buffer->type) {
      return InvalidArgument(which() + ": expected " + (*program.parameters)[i].ToString() + ", got " +
                             buffer->type.ToString());
    }
    Result<values::ValuePtr> value = buffer->Get();
    if (!value.ok()) return value.status().WithPrefix(which());
    PW_RETURN_IF_ERROR(RenewNumber(*session, buffer->cell, row.bound, *value));
    if (!LiesOn(**value, row.bound)) {
      return FailedPrecondition(which() + ", " + buffer->type.ToString() + ", lies on devices that " + NameOf(*device) +
                                " no longer stands for: its slice was released; move tensors with pw.transfer() before "
                                "that, or make them anew");
    }
    row.arguments.push_back(*std::move(value));
  }
  PW_ASSIGN_OR_RETURN(const std::vector<values::ValuePtr> numbers,
                      program.numbers.On(program.client(), device, row.bound));
  row.arguments.insert(row.arguments.end(), numbers.begin(), numbers.end());
  row.done = Event::Make();
  return row;
}

// Values for what a row will give. On a slice it must be known by now how they lie there; where that cannot be
// compiled, they have the reason as their value.
void MakeResults(const compiled::Program& program, Row& row) {
  row.results.reserve(program.results.size());
  Status status;
  if (row.bound->size() > 1) {
    Result<std::shared_ptr<const compiled::SliceProgram>> sliced = program.ForSlice(row.bound, row.arguments);
    status = sliced.status();
    if (sliced.ok()) row.sliced = *std::move(sliced);
  }
  for (size_t k = 0; k < program.results.size(); ++k) {
    const values::ArrayTypePtr& type = program.results[k];
    TilingPtr tiling;
    if (row.sliced != nullptr) {
      tiling = row.sliced->results[k];
    } else if (row.bound->size() > 1) {
      tiling = Intern(Tiling::Replicated(type->type.dims.size(), row.bound->size()));
    }
    row.results.push_back(
        std::make_shared<values::Value>(program.client(), row.device, type, std::move(tiling), row.bound));
  }
  if (!status.ok()) Fail(row, status);
}

// Results whose value is the reason why nothing was executed.
Row RefusedRow(const compiled::Program& program, PJRT_Device* device, const Status& status) {
  Row row;
  row.device = device;
  row.bound = device->devices();
  if (row.bound == nullptr) row.bound = std::make_shared<const std::vector<uint32_t>>(1, 0);
  row.done = Event::Make();
  for (const values::ArrayTypePtr& type : program.results) {
    TilingPtr tiling =
        row.bound->size() > 1 ? Intern(Tiling::Replicated(type->type.dims.size(), row.bound->size())) : nullptr;
    row.results.push_back(
        std::make_shared<values::Value>(program.client(), device, type, std::move(tiling), row.bound));
  }
  Fail(row, status);
  return row;
}

// The positions that a run over `rows` gives up: those the program may take and the caller lets go, as far as nobody
// else stands for the same value.
std::vector<uint32_t> Donated(const std::vector<uint32_t>& candidates, std::span<const Row> rows) {
  std::vector<uint32_t> donated;
  for (uint32_t position : candidates) {
    const bool sole = std::all_of(rows.begin(), rows.end(), [&](const Row& row) {
      const values::Value* const value = row.arguments[position].get();
      return value->HasOneHolder() && std::count_if(row.arguments.begin(), row.arguments.end(),
                                                    [&](const auto& other) { return other.get() == value; }) == 1;
    });
    if (sole) donated.push_back(position);
  }
  return donated;
}

std::vector<uint32_t> Candidates(const compiled::Program& program, const PJRT_ExecuteOptions* options,
                                 size_t arguments) {
  std::vector<uint32_t> candidates;
  for (uint32_t position : program.donatable) {
    if (position >= arguments) continue;
    bool kept = false;
    if (options != nullptr && Has(options, &PJRT_ExecuteOptions::num_non_donatable_input_indices)) {
      for (size_t i = 0; i < options->num_non_donatable_input_indices; ++i) {
        kept = kept || options->non_donatable_input_indices[i] == static_cast<int64_t>(position);
      }
    }
    if (!kept) candidates.push_back(position);
  }
  return candidates;
}

Status CheckOptions(const PJRT_ExecuteOptions* options) {
  if (options == nullptr || !Has(options, &PJRT_ExecuteOptions::num_recv_ops)) return OkStatus();
  if (options->num_send_ops == 0 && options->num_recv_ops == 0) return OkStatus();
  return Unimplemented(
      "host callbacks (send and recv in a computation) are not carried by the pathways platform; "
      "return the value from the computation instead");
}

// The devices a call executes on, one per row.
Result<std::vector<PJRT_Device*>> DevicesOfCall(const compiled::Program& program, size_t rows,
                                                PJRT_Device* execute_device) {
  if (execute_device != nullptr) {
    if (rows != 1) {
      return InvalidArgument("executing on one device takes one list of arguments, got " + std::to_string(rows));
    }
    if (!program.devices.empty() &&
        std::find(program.devices.begin(), program.devices.end(), execute_device) == program.devices.end()) {
      return InvalidArgument(program.What() + " was not compiled for " + execute_device->description.to_string);
    }
    return std::vector<PJRT_Device*>{execute_device};
  }
  if (program.devices.empty()) {
    return InvalidArgument(program.What() + " is portable: say on which device it shall execute");
  }
  if (rows != program.devices.size()) {
    return InvalidArgument(program.What() + " executes on " + std::to_string(program.devices.size()) +
                           " devices and takes as many lists of arguments, got " + std::to_string(rows));
  }
  return program.devices;
}

// Submits what was read: one run over all rows of a gang, a run per row otherwise, or a gang's part.
void SubmitGang(const ProgramPtr& program, std::vector<Row> rows, std::vector<uint32_t> donated) {
  std::vector<uint32_t> ids;
  for (const Row& row : rows) ids.push_back(static_cast<uint32_t>(row.device->description.id));
  auto shared = std::make_shared<std::vector<Row>>(std::move(rows));
  program->client()->sequencer().Submit(ids, [program, shared, donated = std::move(donated)] {
    std::vector<Row*> pointers;
    for (Row& row : *shared) pointers.push_back(&row);
    Launch(program, pointers, donated);
  });
}

void SubmitRow(const ProgramPtr& program, Row row, std::vector<uint32_t> donated) {
  const uint32_t id = static_cast<uint32_t>(row.device->description.id);
  program->client()->sequencer().Submit({&id, 1},
                                        [program, row = std::move(row), donated = std::move(donated)]() mutable {
                                          if (row.sliced != nullptr) {
                                            LaunchOnSlice(program, *row.sliced, row, donated);
                                            return;
                                          }
                                          if (row.lengthened) return LaunchLengthened(program, row, donated);
                                          Row* rows[] = {&row};
                                          Launch(program, rows, donated);
                                        });
}

void JoinGang(const ProgramPtr& program, Row row, std::vector<uint32_t> donated) {
  auto call = std::make_shared<ReplicaCall>();
  for (const PJRT_Device* device : program->devices) {
    if (device == row.device) call->row = call->devices.size();
    call->devices.push_back(static_cast<uint32_t>(device->description.id));
  }
  call->signature = program->signature;
  call->what = program->What();
  call->program = program;
  call->row_of_values = std::move(row);
  call->donated = std::move(donated);
  ReplicaCall* const raw = call.get();  // the sequencer holds the call as long as it may call these
  call->launch = [](std::span<const std::shared_ptr<values::GangCall>> calls) {
    std::vector<Row*> rows;
    std::vector<uint32_t> given_up = static_cast<ReplicaCall&>(*calls[0]).donated;
    for (const auto& each : calls) {
      ReplicaCall& replica = static_cast<ReplicaCall&>(*each);
      rows.push_back(&replica.row_of_values);
      std::erase_if(given_up, [&](uint32_t position) {
        return std::find(replica.donated.begin(), replica.donated.end(), position) == replica.donated.end();
      });
    }
    Launch(static_cast<ReplicaCall&>(*calls[0]).program, rows, given_up);
  };
  call->fail = [raw](const Status& status) { Fail(raw->row_of_values, status); };
  program->client()->sequencer().Join(std::move(call));
}

void Note(const ProgramPtr& program, const std::vector<Row>& rows, const std::vector<uint32_t>& donated) {
  for (const Row& row : rows) {
    const bool compiled = row.sliced != nullptr || row.bound->size() == 1;
    if (!compiled) return capture::Recorder::Note(capture::RecordedGang{program->What()});
    const Result<std::shared_ptr<client::Function>> function =
        row.sliced != nullptr ? row.sliced->function : program->Registered();
    if (program->gang || !function.ok()) return capture::Recorder::Note(capture::RecordedGang{program->What()});
    capture::Recorder::Note(capture::RecordedRun{program, *function, row.device, row.arguments, row.results, donated});
  }
}

}  // namespace

Status LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  using Args = PJRT_LoadedExecutable_Execute_Args;
  const ProgramPtr program = args->executable->program;
  if (args->executable->deleted) return InvalidArgument(program->What() + " was deleted");
  PW_RETURN_IF_ERROR(CheckOptions(args->options));
  PJRT_Device* const execute_device = Has(args, &Args::execute_device) ? args->execute_device : nullptr;
  PW_ASSIGN_OR_RETURN(const std::vector<PJRT_Device*> devices,
                      DevicesOfCall(*program, args->num_devices, execute_device));
  if (program->parameters && program->parameters->size() != args->num_args) {
    return InvalidArgument(program->What() + " takes " + std::to_string(program->parameters->size()) +
                           " arguments, got " + std::to_string(args->num_args));
  }
  if ((args->argument_lists == nullptr && args->num_args > 0) ||
      (args->output_lists == nullptr && !program->results.empty())) {
    return InvalidArgument("the lists of arguments or of results are null");
  }

  ForgetExecution();
  std::vector<Row> rows;
  Status refused;
  for (size_t i = 0; i < devices.size(); ++i) {
    Result<Row> row =
        ReadRow(*program, devices[i], args->num_args > 0 ? args->argument_lists[i] : nullptr, args->num_args);
    if (!row.ok() &&
        program->client()->is_logical()) {  // who reads a result hears why; PyTorch/XLA would lose the reason
      refused = row.status();
      row = RefusedRow(*program, devices[i], refused);
    }
    PW_RETURN_IF_ERROR(row.status());
    if (refused.ok()) MakeResults(*program, *row);
    rows.push_back(*std::move(row));
  }
  const std::vector<uint32_t> candidates = Candidates(*program, args->options, args->num_args);
  std::vector<uint32_t> donated = refused.ok() ? Donated(candidates, rows) : std::vector<uint32_t>();
  for (size_t i = 0; i < rows.size(); ++i) {
    for (uint32_t position : candidates) args->argument_lists[i][position]->Drop();
    for (size_t k = 0; k < rows[i].results.size(); ++k) {
      args->output_lists[i][k] = new PJRT_Buffer(rows[i].results[k]);
    }
    if (args->device_complete_events != nullptr) {
      args->device_complete_events[i] = NewEvent(*program->client(), rows[i].done, true);
    }
  }
  if (!refused.ok()) return OkStatus();
  if (capture::Recorder::active()) Note(program, rows, donated);
  if (program->lengthened != nullptr && !program->gang && !capture::Recorder::active()) {
    for (Row& row : rows) {
      row.lengthened =
          row.bound->size() == 1 && program->lengthened->Serves(*program, row.device, row.bound, row.arguments);
    }
  }
  if (!program->gang) {
    for (Row& row : rows) {
      if (row.sliced != nullptr || row.bound->size() == 1) SubmitRow(program, std::move(row), donated);
    }
  } else if (execute_device == nullptr || program->devices.size() == 1) {
    SubmitGang(program, std::move(rows), std::move(donated));
  } else {
    JoinGang(program, std::move(rows[0]), std::move(donated));
  }
  return OkStatus();
}

}  // namespace pathways::plugin
