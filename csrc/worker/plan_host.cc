#include "csrc/worker/plan_host.h"

#include <algorithm>

#include "csrc/worker/known_values.h"

namespace pathways::worker {

void PlanHost::Begin(const std::shared_ptr<Program>& program, const wire::RunProgram& run,
                     std::span<const uint64_t> results, uint64_t sequence, Status refused) {
  program_ = program.get();
  run_ = &run;
  results_ = results;
  sequence_ = sequence;
  refused_ = std::move(refused);
  failure_ = OkStatus();
  pending_ = std::make_shared<PendingRun>();
  pending_->run = run.run;
  pending_->first_output = run.first_output;
  pending_->output_count = run.output_count;
  in_place_ = !results.empty();
  if (in_place_) pending_->results.assign(results.begin(), results.end());
  pending_->program = program;
  arriving_.clear();
  times_ = program->times && refused_.ok() ? program->times->Begin(run.run) : nullptr;
  walker_.Begin(*program->plan, run, *this);
}

PlanHost::Value PlanHost::Failed(Status status) {
  if (failure_.ok()) failure_ = status;
  auto object = std::make_shared<store::Object>(0);
  object->error = std::move(status);
  return object;
}

PlanHost::Value PlanHost::Empty(const wire::PlanSlot& slot) const {
  auto object = std::make_shared<store::Object>(slot.shards.size());
  for (size_t p = 0; p < slot.shards.size(); ++p) {
    object->shards[p].number = slot.shards[p];
    object->shards[p].device = slot.devices[p] - context_.first_device();
    object->shards[p].bytes = slot.type.ByteSize();
  }
  return object;
}

void PlanHost::Refuse(const wire::PlanStep& step, uint64_t first_key, const Status& status) {
  for (const wire::PlanPiece& piece : step.pieces) {
    incoming_.Refuse(first_key + piece.channel, piece.host, status);
  }
}

bool PlanHost::HasRoom(const plan::Plan& plan, size_t index, std::span<const Value> slots) const {
  if (!refused_.ok()) return true;
  const wire::PlanStep& step = plan.steps()[index];
  const bool copies = step.kind == wire::StepKind::kCopy;
  const wire::PlanSlot& place = plan.slots()[step.results.empty() ? step.arguments[0] : step.results[0]];
  if (!copies && launcher_.IsFull(place.devices)) return false;
  if (context_.hands_errors_on()) return true;
  if (copies) {
    const Value& from = slots[step.arguments[0]];
    if (from == nullptr || !from->error.ok()) return true;
    // On one device nothing is copied: whoever reads the copy waits for it.
    const size_t to = place.devices[step.shard] - context_.first_device();
    return from->At(step.source_shard).device == to || !launcher_.MustArrive(*from);
  }
  const bool spans_hosts = program_->by_step[index]->places != nullptr;
  return std::none_of(step.arguments.begin(), step.arguments.end(), [&](uint32_t slot) {
    return slots[slot] != nullptr && launcher_.MustArrive(*slots[slot], spans_hosts);
  });
}

// What a run of this host made is there when the computation before is over, and that is noted anyway.
void PlanHost::NoteArrivals(uint32_t slot, const Value& argument) {
  if (times_ == nullptr) return;
  for (size_t p = 0; p < argument->shards.size(); ++p) {
    const bool own = argument->aliases.empty() || argument->aliases[p].of == nullptr;
    const store::Object& holder = own ? *argument : *argument->aliases[p].of;
    if (holder.origin == nullptr) NoteArrival(slot, argument->At(p));
  }
}

Result<PlanHost::Value> PlanHost::Argument(const plan::Plan& plan, const wire::RunProgram& run, size_t position,
                                           bool given_up) {
  const std::string& program = plan.description().name;
  const auto here = [&](const char* why) {
    return context_.Here(
        NotFound("argument " + std::to_string(position) + " of program '" + program + "' is not on this host: " + why));
  };
  if (position >= run.arguments.size()) return here("the run gives fewer arguments than the program has");
  const wire::PlanPort& port = plan.description().inputs[position];
  const wire::PlanSlot& slot = plan.slots()[port.slot];
  const uint64_t argument = run.arguments[position];
  const auto find = [&](uint64_t id) -> Result<Value> {
    Value object = context_.store().Find(id);
    if (object == nullptr) return here("it was donated to an earlier run or freed");
    if (!object->error.ok()) return object->error;
    if (context_.hands_errors_on()) {
      RootCauses::Note(*object, pending_->inputs);
    } else {
      RootCauses::NoteAll(*object, pending_->inputs);
    }
    if (given_up) context_.store().Remove(id);
    return object;
  };
  if (!(argument & wire::kAssembledBit)) {
    PW_ASSIGN_OR_RETURN(Value object, find(argument));
    PW_ASSIGN_OR_RETURN(Value arranged, Arranged(slot, std::move(object)));
    PW_RETURN_IF_ERROR(
        CheckType(slot, arranged).WithPrefix("argument " + std::to_string(position) + " of program '" + program + "'"));
    NoteArrivals(port.slot, arranged);
    return arranged;
  }
  const uint64_t base = argument & ~wire::kAssembledBit;
  if (base > run.assembled.size() || run.assembled.size() - base < uint64_t{2} * port.shard_count) {
    return context_.Here(DataLoss("RUN_PROGRAM names assembled shards that are not there"));
  }
  Value assembled = Empty(slot);
  assembled->aliases.resize(slot.shards.size());
  for (size_t p = 0; p < slot.shards.size(); ++p) {
    PW_ASSIGN_OR_RETURN(Value object, find(run.assembled[base + 2 * slot.shards[p]]));
    const size_t at = object->PositionOf(run.assembled[base + 2 * slot.shards[p] + 1]);
    if (at == object->shards.size()) return here("its buffer has no such shard");
    assembled->aliases[p] = {std::move(object), at};
  }
  PW_RETURN_IF_ERROR(
      CheckType(slot, assembled).WithPrefix("argument " + std::to_string(position) + " of program '" + program + "'"));
  NoteArrivals(port.slot, assembled);
  return assembled;
}

Result<PlanHost::Value> PlanHost::Arranged(const wire::PlanSlot& slot, Value object) const {
  bool same = object->shards.size() == slot.shards.size();
  for (size_t p = 0; same && p < slot.shards.size(); ++p) same = object->shards[p].number == slot.shards[p];
  if (same) return object;
  Value arranged = Empty(slot);
  arranged->aliases.resize(slot.shards.size());
  for (size_t p = 0; p < slot.shards.size(); ++p) {
    const size_t at = object->PositionOf(slot.shards[p]);
    if (at == object->shards.size()) {
      return context_.Here(
          InvalidArgument("a buffer has no shard " + std::to_string(slot.shards[p]) + " on this host"));
    }
    arranged->aliases[p] = {object, at};
  }
  return arranged;
}

Status PlanHost::CheckType(const wire::PlanSlot& slot, const Value& value) const {
  for (size_t p = 0; p < slot.shards.size(); ++p) {
    const store::Object::Shard& shard = value->At(p);
    if (shard.staged != nullptr) {
      return context_.Here(ResourceExhausted(
          "out of device memory: it is in host memory, and cannot be on its device together with the other arguments "
          "and what the program needs; use a smaller batch or model, or more devices"));
    }
    if (!shard.buffer.valid()) return context_.Here(FailedPrecondition("a shard has not been put yet"));
    if (shard.buffer.type() != slot.type) {
      return context_.Here(
          InvalidArgument("expected shards of " + slot.type.ToString() + ", got " + shard.buffer.type().ToString()));
    }
    if (shard.device != slot.devices[p] - context_.first_device()) {
      return context_.Here(InvalidArgument("expected shard " + std::to_string(slot.shards[p]) + " on device " +
                                           std::to_string(slot.devices[p]) + ", got it on device " +
                                           std::to_string(context_.first_device() + shard.device)));
    }
  }
  return OkStatus();
}

bool PlanHost::Owned(const Value& value) {
  if (value.use_count() != 1) return false;
  for (const store::Object::Alias& alias : value->aliases) {
    if (alias.of != nullptr && !Owned(alias.of)) return false;
  }
  return true;
}

void PlanHost::Arrange(std::span<const Value> arguments, std::span<const char> may_donate, size_t rows) {
  Launcher::Arguments& table = launcher_.Begin(rows, arguments.size());
  for (size_t position = 0; position < arguments.size(); ++position) {
    bool donatable = may_donate[position] && Owned(arguments[position]);
    for (size_t row = 0; row < rows; ++row) {
      store::Object::Shard& shard = arguments[position]->At(row);
      table.rows[row][position] = &shard.buffer;
      donatable = donatable && shard.pins.load() == 0;
    }
    if (!donatable) table.non_donatable.push_back(static_cast<int64_t>(position));
  }
}

void PlanHost::NoteArrivalsAgain(const wire::PlanStep& step, std::span<const Value> arguments, size_t rows) {
  for (size_t position = 0; position < arguments.size() && !arriving_.empty(); ++position) {
    if (std::erase(arriving_, step.arguments[position]) == 0) continue;
    for (size_t row = 0; row < rows; ++row) {
      const store::Object::Shard& shard = arguments[position]->At(row);
      RunTimes::NoteArrival(times_, step.arguments[position], shard.device, shard.buffer);
    }
  }
}

PlanHost::Value PlanHost::Output(const wire::PlanSlot& slot, size_t k) {
  Value made = Empty(slot);
  for (size_t row = 0; row < made->shards.size(); ++row) {
    made->shards[row].buffer = std::move(launcher_.outputs().buffers[row][k]);
  }
  return made;
}

Result<std::shared_ptr<PendingRun>> PlanHost::PartThatReads(std::span<const Value> arguments, size_t index) const {
  std::shared_ptr<PendingRun> part = Completions::PartOf(pending_, index);
  for (const Value& argument : arguments) {
    PW_RETURN_IF_ERROR(FailureOf(context_, completions_.causes(), *argument));
    RootCauses::NoteAll(*argument, part->inputs);
  }
  return part;
}

Status PlanHost::Execute(const plan::Plan& plan, size_t index, std::span<const Value> arguments,
                         std::span<const char> may_donate, std::span<Value> results) {
  PW_RETURN_IF_ERROR(refused_);
  const wire::PlanStep& step = plan.steps()[index];
  const Function& function = *program_->by_step[index];
  if (!function.status.ok()) return function.status;
  const size_t rows = function.local.size();
  const wire::PlanSlot& place = plan.slots()[step.results.empty() ? step.arguments[0] : step.results[0]];
  std::shared_ptr<PendingRun> part;
  if (!context_.hands_errors_on()) {
    PW_ASSIGN_OR_RETURN(part, PartThatReads(arguments, index));
  }
  Arrange(arguments, may_donate, rows);
  const auto blame = [&](const Status& status) {
    return completions_.RootCause(status, function.Describe() + ", " + program_->Describe(index), pending_->inputs);
  };
  const size_t device = place.devices[0] - context_.first_device();
  const Status status = launcher_.Enqueue(
      function, {.device = device, .run = pending_->run, .id = {sequence_, step.gang}, .times = times_, .step = index});
  if (!status.ok()) return blame(status);
  NoteArrivalsAgain(step, arguments, rows);
  for (size_t k = 0; k < results.size(); ++k) results[k] = Output(plan.slots()[step.results[k]], k);
  for (size_t row = 0; row < rows; ++row) {
    pjrt::EventHandle& done = launcher_.outputs().done[row];
    if (done.IsReady()) {
      if (Status outcome = done.Await(); !outcome.ok()) return blame(outcome);
      continue;
    }
    if (part != nullptr) {
      completions_.Watch(part, done);
    } else if (plan.is_leaf(index)) {
      completions_.Watch(pending_, done);
    }
    pending_->steps.emplace_back(std::move(done), index);
  }
  if (part != nullptr) {
    for (const Value& result : results) result->origin = part->origin;
    completions_.EnqueuedPart(part);
  }
  pending_->device = device;
  return OkStatus();
}

void PlanHost::Send(const wire::PlanStep& step, const wire::PlanSlot& slot, const Value& value, uint64_t key) {
  if (times_) times_->read_ns = 0;
  const bool here = step.host == context_.number();
  std::string peer;
  if (!here) {
    Result<std::string> found = buffers_.PeerOf(step.host);
    if (!found.ok()) {  // of a lost host its client hears from the controller
      if (const wire::HostDescription* const lost = cluster_.Find(step.host)) {
        peer = dataplane::DataPlane::PeerOfHost(lost->name);
        buffers_.TellBySender(peer, key, found.status());
      }
      return;
    }
    peer = *std::move(found);
  }
  const auto fail = [this, here, peer, key](const Status& status) {
    if (here) return incoming_.DeliverFailure(key, status);
    data_.SendFailure(peer, key, status);
  };
  if (!value->error.ok()) return fail(value->error);
  const bool everything = !step.box.whole() && step.box.size == slot.type.dims;
  buffers_.SendShard(peer, key, {value, step.shard}, everything ? wire::Box{} : step.box, fail);
  NoteDeparture(step.arguments[0], value->At(step.shard));
}

Status PlanHost::Receive(const wire::PlanStep& step, const wire::PlanSlot& slot, Value& value, uint64_t first_key) {
  PW_RETURN_IF_ERROR(refused_);
  store::Object::Shard& shard = value->shards[step.shard];
  if (slot.type.ByteSize() == 0) {
    PW_ASSIGN_OR_RETURN(shard.buffer, context_.client()->BufferFromHost("", slot.type, static_cast<int>(shard.device)));
    return OkStatus();
  }
  if (step.pieces.size() == 1) {
    const wire::PlanPiece& piece = step.pieces[0];
    PW_ASSIGN_OR_RETURN(shard.buffer,
                        buffers_.MakeIncoming(first_key + piece.channel, shard.device, slot.type, piece.host));
    NoteArrival(step.results[0], shard);
    return OkStatus();
  }
  PW_ASSIGN_OR_RETURN(auto async, context_.client()->CreateAsyncBuffer(slot.type, static_cast<int>(shard.device)));
  PW_ASSIGN_OR_RETURN(shard.buffer, async->TakeBuffer());
  std::vector<Incoming::Piece> pieces;
  pieces.reserve(step.pieces.size());
  for (const wire::PlanPiece& piece : step.pieces) {
    pieces.push_back({first_key + piece.channel, piece.host, {piece.box.start, piece.box.size}});
  }
  incoming_.Assemble(std::move(pieces), std::move(async));
  NoteArrival(step.results[0], shard);
  return OkStatus();
}

Status PlanHost::Copy(const wire::PlanStep& step, const Value& from, Value& to) {
  PW_RETURN_IF_ERROR(refused_);
  store::Object::Shard& target = to->shards[step.shard];
  store::Object::Shard& source = from->At(step.source_shard);
  if (source.device != target.device) {
    std::shared_ptr<PendingRun> part;
    if (!context_.hands_errors_on()) {
      // What made the other shards so far counts as read: the object has one origin.
      const size_t index = static_cast<size_t>(&step - program_->plan->steps().data());
      PW_ASSIGN_OR_RETURN(part, PartThatReads({&from, 1}, index));
      RootCauses::Note(*to, part->inputs);
    }
    PW_ASSIGN_OR_RETURN(target.buffer, source.buffer.CopyToDevice(static_cast<int>(target.device)));
    if (part != nullptr) {
      PW_ASSIGN_OR_RETURN(pjrt::EventHandle ready, target.buffer.ReadyEvent());
      completions_.Watch(part, ready);
      to->origin = part->origin;
      completions_.EnqueuedPart(part);
    }
    NoteDeparture(step.arguments[0], source);
    NoteArrival(step.results[0], target);
    return OkStatus();
  }
  // Values never change, so on one device a copy is the same memory under another name.
  if (to->aliases.empty()) to->aliases.resize(to->shards.size());
  to->aliases[step.shard] = {from, step.source_shard};
  NoteArrival(step.results[0], source);
  return OkStatus();
}

void PlanHost::Keep(size_t result, uint64_t buffer, Value value) {
  if (value->error.ok() && program_->watch_output[result]) {
    for (size_t p = 0; p < value->shards.size(); ++p) {
      Result<pjrt::EventHandle> ready = value->At(p).buffer.ReadyEvent();
      if (!ready.ok() || ready->IsReady()) continue;
      completions_.Watch(pending_, *ready);
    }
  }
  // An argument may come back as it is. Where steps are followed one by one, what has no origin was received.
  if (value->origin == nullptr && context_.hands_errors_on()) value->origin = pending_->origin;
  if (in_place_) context_.store().Remove(buffer);  // what the result takes the place of
  if (Status status = context_.store().Insert(buffer, std::move(value)); !status.ok()) context_.Log(status.ToString());
}

}  // namespace pathways::worker
