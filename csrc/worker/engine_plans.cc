// Engine: runs of programs. Plans are walked; a walk stops while a device is full.
#include <algorithm>
#include <numeric>

#include "csrc/base/strided.h"
#include "csrc/worker/engine.h"

namespace pathways::worker {

// What the engine is to plan::Walker. One walk at a time, on the engine's thread.
class Engine::PlanHost {
 public:
  using Value = std::shared_ptr<store::Object>;

  explicit PlanHost(Engine& engine) : engine_(engine) {}

  void Begin(const std::shared_ptr<Program>& program, const wire::RunProgram& run, std::span<const uint64_t> results,
             Status refused) {
    program_ = program.get();
    run_ = &run;
    results_ = results;
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
  // False: a device is full.
  bool Continue() {
    if (times_) times_->read_ns = 0;
    return walker_.Continue(*program_->plan, *run_, *this);
  }
  Status Finish() { return walker_.Finish(*program_->plan, *run_, results_, *this); }
  const Program& program() const { return *program_; }  // of the walk
  bool walking() const { return pending_ != nullptr; }
  std::shared_ptr<PendingRun> TakePending() {
    times_.reset();
    return std::exchange(pending_, nullptr);
  }
  // Why a step of the last walk was not enqueued, or OK.
  const Status& failure() const { return failure_; }

  // --- plan::Walker's backend
  bool IsSomething(const Value& value) const { return value != nullptr; }
  const Status& ErrorOf(const Value& value) const { return value->error; }
  Value Failed(Status status) {
    if (failure_.ok()) failure_ = status;
    auto object = std::make_shared<store::Object>(0);
    object->error = std::move(status);
    return object;
  }
  Value Empty(const wire::PlanSlot& slot) const {
    auto object = std::make_shared<store::Object>(slot.shards.size());
    for (size_t p = 0; p < slot.shards.size(); ++p) {
      object->shards[p].number = slot.shards[p];
      object->shards[p].device = slot.devices[p] - engine_.context_.first_device();
      object->shards[p].bytes = slot.type.ByteSize();
    }
    return object;
  }
  Result<Value> Argument(const plan::Plan& plan, const wire::RunProgram& run, size_t position, bool given_up);
  Status Execute(const plan::Plan& plan, size_t index, std::span<const Value> arguments,
                 std::span<const char> may_donate, std::span<Value> results);
  void Send(const wire::PlanStep& step, const wire::PlanSlot& slot, const Value& value, uint64_t key);
  Status Receive(const wire::PlanStep& step, const wire::PlanSlot& slot, Value& value, uint64_t first_key);
  void Refuse(const wire::PlanStep& step, uint64_t first_key, const Status& status) {
    for (const wire::PlanPiece& piece : step.pieces) {
      engine_.incoming_->Refuse(first_key + piece.channel, piece.host, status);
    }
  }
  Status Copy(const wire::PlanStep& step, const Value& from, Value& to);
  void Keep(size_t result, uint64_t buffer, Value value);
  bool HasRoom(const plan::Plan& plan, size_t index, std::span<const Value> slots) const {
    if (!refused_.ok()) return true;
    const wire::PlanStep& step = plan.steps()[index];
    if (engine_.launcher_->IsFull(plan.slots()[step.results.empty() ? step.arguments[0] : step.results[0]].devices))
      return false;
    return std::none_of(step.arguments.begin(), step.arguments.end(), [&](uint32_t slot) {
      return slots[slot] != nullptr && engine_.launcher_->MustArrive(*slots[slot]);
    });
  }

 private:
  // The object as the slot lists its shards; the object itself when that is how it is.
  Result<Value> Arranged(const wire::PlanSlot& slot, Value object) const;
  Status CheckType(const wire::PlanSlot& slot, const Value& value) const;
  static bool Owned(const Value& value);
  // When what reads the slot can begin, and when what made it has ended.
  void NoteArrival(uint32_t slot, const store::Object::Shard& shard) {
    if (times_ && RunTimes::NoteArrival(times_, slot, shard.device, shard.buffer)) arriving_.push_back(slot);
  }
  void NoteArrivals(uint32_t slot, const Value& argument);
  void NoteDeparture(uint32_t slot, const store::Object::Shard& shard) {
    if (times_) RunTimes::NoteDeparture(times_, slot, shard.device, shard.buffer);
  }

  Engine& engine_;
  plan::Walker<PlanHost> walker_;
  Program* program_ = nullptr;  // held by pending_, as are the next two by the engine
  const wire::RunProgram* run_ = nullptr;
  std::span<const uint64_t> results_;
  Status failure_;
  Status refused_;  // not OK: the run does not fit, and only hands its error on
  std::shared_ptr<PendingRun> pending_;
  std::shared_ptr<RunTimes::Run> times_;  // null: the run is not noted
  std::vector<uint32_t> arriving_;        // slots whose arrival was noted, and which nothing has read yet
  bool in_place_ = false;
};

// What a run of this host made is there when the computation before is over, and that is noted anyway.
void Engine::PlanHost::NoteArrivals(uint32_t slot, const Value& argument) {
  if (times_ == nullptr) return;
  for (size_t p = 0; p < argument->shards.size(); ++p) {
    const bool own = argument->aliases.empty() || argument->aliases[p].of == nullptr;
    const store::Object& holder = own ? *argument : *argument->aliases[p].of;
    if (holder.origin == nullptr) NoteArrival(slot, argument->At(p));
  }
}

Result<Engine::PlanHost::Value> Engine::PlanHost::Argument(const plan::Plan& plan, const wire::RunProgram& run,
                                                           size_t position, bool given_up) {
  const std::string& program = plan.description().name;
  const auto here = [&](const char* why) {
    return engine_.context_.Here(
        NotFound("argument " + std::to_string(position) + " of program '" + program + "' is not on this host: " + why));
  };
  if (position >= run.arguments.size()) return here("the run gives fewer arguments than the program has");
  const wire::PlanPort& port = plan.description().inputs[position];
  const wire::PlanSlot& slot = plan.slots()[port.slot];
  const uint64_t argument = run.arguments[position];
  const auto find = [&](uint64_t id) -> Result<Value> {
    Value object = engine_.context_.store().Find(id);
    if (object == nullptr) return here("it was donated to an earlier run or freed");
    if (!object->error.ok()) return object->error;
    RootCauses::Note(*object, pending_->inputs);
    if (given_up) engine_.context_.store().Remove(id);
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
    return engine_.context_.Here(DataLoss("RUN_PROGRAM names assembled shards that are not there"));
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

Result<Engine::PlanHost::Value> Engine::PlanHost::Arranged(const wire::PlanSlot& slot, Value object) const {
  bool same = object->shards.size() == slot.shards.size();
  for (size_t p = 0; same && p < slot.shards.size(); ++p) same = object->shards[p].number == slot.shards[p];
  if (same) return object;
  Value arranged = Empty(slot);
  arranged->aliases.resize(slot.shards.size());
  for (size_t p = 0; p < slot.shards.size(); ++p) {
    const size_t at = object->PositionOf(slot.shards[p]);
    if (at == object->shards.size()) {
      return engine_.context_.Here(
          InvalidArgument("a buffer has no shard " + std::to_string(slot.shards[p]) + " on this host"));
    }
    arranged->aliases[p] = {object, at};
  }
  return arranged;
}

Status Engine::PlanHost::CheckType(const wire::PlanSlot& slot, const Value& value) const {
  for (size_t p = 0; p < slot.shards.size(); ++p) {
    const store::Object::Shard& shard = value->At(p);
    if (shard.staged != nullptr) {
      return engine_.context_.Here(ResourceExhausted(
          "out of device memory: it is in host memory, and cannot be on its device together with the other arguments "
          "and what the program needs; use a smaller batch or model, or more devices"));
    }
    if (!shard.buffer.valid()) return engine_.context_.Here(FailedPrecondition("a shard has not been put yet"));
    if (shard.buffer.type() != slot.type) {
      return engine_.context_.Here(
          InvalidArgument("expected shards of " + slot.type.ToString() + ", got " + shard.buffer.type().ToString()));
    }
    if (shard.device != slot.devices[p] - engine_.context_.first_device()) {
      return engine_.context_.Here(InvalidArgument("expected shard " + std::to_string(slot.shards[p]) + " on device " +
                                                   std::to_string(slot.devices[p]) + ", got it on device " +
                                                   std::to_string(engine_.context_.first_device() + shard.device)));
    }
  }
  return OkStatus();
}

bool Engine::PlanHost::Owned(const Value& value) {
  if (value.use_count() != 1) return false;
  for (const store::Object::Alias& alias : value->aliases) {
    if (alias.of != nullptr && !Owned(alias.of)) return false;
  }
  return true;
}

Status Engine::PlanHost::Execute(const plan::Plan& plan, size_t index, std::span<const Value> arguments,
                                 std::span<const char> may_donate, std::span<Value> results) {
  PW_RETURN_IF_ERROR(refused_);
  const wire::PlanStep& step = plan.steps()[index];
  const Function& function = *program_->by_step[index];
  if (!function.status.ok()) return function.status;
  const size_t rows = function.local.size();
  const wire::PlanSlot& place = plan.slots()[step.results.empty() ? step.arguments[0] : step.results[0]];
  Launcher::Arguments& table = engine_.launcher_->Begin(rows, arguments.size());
  for (size_t position = 0; position < arguments.size(); ++position) {
    bool donatable = may_donate[position] && Owned(arguments[position]);
    for (size_t row = 0; row < rows; ++row) {
      store::Object::Shard& shard = arguments[position]->At(row);
      table.rows[row][position] = &shard.buffer;
      donatable = donatable && shard.pins.load() == 0;
    }
    if (!donatable) table.non_donatable.push_back(static_cast<int64_t>(position));
  }
  const auto blame = [&](const Status& status) {
    return engine_.completions_->RootCause(status, function.Describe() + ", " + program_->Describe(index),
                                           pending_->inputs);
  };
  const size_t device = place.devices[0] - engine_.context_.first_device();
  const Status status = engine_.launcher_->Enqueue(
      function,
      {.device = device, .run = pending_->run, .id = {engine_.sequence_, step.gang}, .times = times_, .step = index});
  if (!status.ok()) return blame(status);
  for (size_t position = 0; position < arguments.size() && !arriving_.empty(); ++position) {
    // Now that this has subscribed, once more, so as to be told before it.
    if (std::erase(arriving_, step.arguments[position]) == 0) continue;
    for (size_t row = 0; row < rows; ++row) {
      const store::Object::Shard& shard = arguments[position]->At(row);
      RunTimes::NoteArrival(times_, step.arguments[position], shard.device, shard.buffer);
    }
  }
  for (size_t k = 0; k < results.size(); ++k) {
    results[k] = Empty(plan.slots()[step.results[k]]);
    for (size_t row = 0; row < rows; ++row) {
      results[k]->shards[row].buffer = std::move(engine_.launcher_->outputs().buffers[row][k]);
    }
  }
  for (size_t row = 0; row < rows; ++row) {
    pjrt::EventHandle& done = engine_.launcher_->outputs().done[row];
    if (done.IsReady()) {
      if (Status outcome = done.Await(); !outcome.ok()) return blame(outcome);
      continue;
    }
    if (plan.is_leaf(index)) {
      engine_.completions_->Watch(pending_, done);
    }
    pending_->steps.emplace_back(std::move(done), index);
  }
  pending_->device = device;
  return OkStatus();
}

void Engine::PlanHost::Send(const wire::PlanStep& step, const wire::PlanSlot& slot, const Value& value, uint64_t key) {
  if (times_) times_->read_ns = 0;
  const bool here = step.host == engine_.context_.number();
  std::string peer;
  if (!here) {
    Result<std::string> found = engine_.buffers_->PeerOf(step.host);
    if (!found.ok()) {  // of a lost host its client hears from the controller
      if (const wire::HostDescription* const lost = engine_.cluster_view_.Find(step.host)) {
        peer = dataplane::DataPlane::PeerOfHost(lost->name);
        engine_.buffers_->TellBySender(peer, key, found.status());
      }
      return;
    }
    peer = *std::move(found);
  }
  const auto fail = [engine = &engine_, here, peer, key](const Status& status) {
    if (here) return engine->incoming_->DeliverFailure(key, status);
    engine->data_->SendFailure(peer, key, status);
  };
  if (!value->error.ok()) return fail(value->error);
  const bool everything = !step.box.whole() && step.box.size == slot.type.dims;
  engine_.buffers_->SendShard(peer, key, {value, step.shard}, everything ? wire::Box{} : step.box, fail);
  NoteDeparture(step.arguments[0], value->At(step.shard));
}

Status Engine::PlanHost::Receive(const wire::PlanStep& step, const wire::PlanSlot& slot, Value& value,
                                 uint64_t first_key) {
  PW_RETURN_IF_ERROR(refused_);
  store::Object::Shard& shard = value->shards[step.shard];
  if (slot.type.ByteSize() == 0) {
    PW_ASSIGN_OR_RETURN(shard.buffer,
                        engine_.context_.client()->BufferFromHost("", slot.type, static_cast<int>(shard.device)));
    return OkStatus();
  }
  if (step.pieces.size() == 1) {
    const wire::PlanPiece& piece = step.pieces[0];
    PW_ASSIGN_OR_RETURN(shard.buffer,
                        engine_.buffers_->MakeIncoming(first_key + piece.channel, shard.device, slot.type, piece.host));
    NoteArrival(step.results[0], shard);
    return OkStatus();
  }
  PW_ASSIGN_OR_RETURN(auto async,
                      engine_.context_.client()->CreateAsyncBuffer(slot.type, static_cast<int>(shard.device)));
  PW_ASSIGN_OR_RETURN(shard.buffer, async->TakeBuffer());
  std::vector<Incoming::Piece> pieces;
  pieces.reserve(step.pieces.size());
  for (const wire::PlanPiece& piece : step.pieces) {
    pieces.push_back({first_key + piece.channel, piece.host, {piece.box.start, piece.box.size}});
  }
  engine_.incoming_->Assemble(std::move(pieces), std::move(async));
  NoteArrival(step.results[0], shard);
  return OkStatus();
}

Status Engine::PlanHost::Copy(const wire::PlanStep& step, const Value& from, Value& to) {
  PW_RETURN_IF_ERROR(refused_);
  store::Object::Shard& target = to->shards[step.shard];
  store::Object::Shard& source = from->At(step.source_shard);
  if (source.device != target.device) {
    PW_ASSIGN_OR_RETURN(target.buffer, source.buffer.CopyToDevice(static_cast<int>(target.device)));
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

void Engine::PlanHost::Keep(size_t result, uint64_t buffer, Value value) {
  if (value->error.ok() && program_->watch_output[result]) {
    for (size_t p = 0; p < value->shards.size(); ++p) {
      Result<pjrt::EventHandle> ready = value->At(p).buffer.ReadyEvent();
      if (!ready.ok() || ready->IsReady()) continue;
      engine_.completions_->Watch(pending_, *ready);
    }
  }
  if (value->origin == nullptr) value->origin = pending_->origin;  // an argument may come back as it is
  if (in_place_) engine_.context_.store().Remove(buffer);          // what the result takes the place of
  if (Status status = engine_.context_.store().Insert(buffer, std::move(value)); !status.ok())
    engine_.context_.Log(status.ToString());
}

Status Engine::CheckPlanMemory(const Program& program, const wire::RunProgram& run) const {
  const plan::Plan& plan = *program.plan;
  // What the run is given makes room for what it makes.
  std::vector<int64_t> given(plan.peak_bytes().size(), 0);
  const auto give = [&](uint64_t id) {
    const std::shared_ptr<store::Object> object = context_.store().Find(id);
    if (object == nullptr || object->spilled) return;
    for (const store::Object::Shard& shard : object->shards) given[shard.device] += shard.bytes;
  };
  for (const uint32_t position : run.donated) {
    if (position < run.arguments.size() && !(run.arguments[position] & wire::kAssembledBit)) {
      give(run.arguments[position]);
    }
  }
  for (size_t d = 0; d < plan.peak_bytes().size(); ++d) {
    const int64_t bytes = plan.peak_bytes()[d] - given[d];
    if (bytes <= 0) continue;
    Status fits = context_.store().account().Check(d, bytes, 0, "program '" + plan.description().name + "'");
    if (!fits.ok()) return context_.Here(fits);
  }
  return OkStatus();
}

void Engine::OnRunProgram(wire::RunProgram run) {
  Result<std::shared_ptr<Program>> program = ReadyProgram(run.program);
  Status status = program.status();
  if (status.ok() && run.output_count != (*program)->plan->description().outputs.size()) {
    status = context_.Here(InvalidArgument("expected a run with " +
                                           std::to_string((*program)->plan->description().outputs.size()) +
                                           " outputs, got " + std::to_string(run.output_count)));
  }
  if (status.ok()) {
    walked_run_ = std::move(run);
    return WalkProgram(*program, walked_run_, {});
  }
  std::vector<uint64_t> results(std::min(run.output_count, wire::kMaxRunOutputs));
  std::iota(results.begin(), results.end(), run.first_output);
  gangs_->AbortElsewhere(run.run, status);
  if (program.ok()) RefuseRun(**program, run.first_key, status);
  completions_->Poison(run.run, results, status);
}

// The other hosts must not wait for what this one would have sent, nor keep what it would have received.
void Engine::RefuseRun(const Program& program, uint64_t first_key, const Status& status) {
  for (const wire::PlanStep& step : program.plan->steps()) {
    if (step.kind == wire::StepKind::kSend && step.host != context_.number()) {
      if (Result<std::string> peer = buffers_->PeerOf(step.host); peer.ok()) {
        data_->SendFailure(*peer, first_key + step.channel, status);
      }
    } else if (step.kind == wire::StepKind::kReceive) {
      for (const wire::PlanPiece& piece : step.pieces) {
        if (piece.host != context_.number()) incoming_->Refuse(first_key + piece.channel, piece.host, status);
      }
    }
  }
}

void Engine::OnRunInPlace(const wire::RunInPlace& message) {
  Result<std::shared_ptr<Program>> program = ReadyProgram(message.program);
  Status status = program.status();
  if (status.ok()) status = context_.Here((*program)->places.Check(message));
  if (status.ok()) {
    (*program)->places.Apply(message);
    (*program)->places.Spell(message, full_run_);
    return WalkProgram(*program, full_run_.run, full_run_.results);
  }
  // What it would have made anew has no value. Its client fills all places again after a failure (places.h).
  std::vector<uint64_t> results;
  for (size_t i = 0; i < message.after.size() && i < message.before.size(); ++i) {
    if (message.after[i] != message.before[i]) results.push_back(message.after[i]);
  }
  for (uint32_t k = 0; k < std::min(message.output_count, wire::kMaxRunOutputs); ++k) {
    results.push_back(message.first_output + k);
  }
  gangs_->AbortElsewhere(message.run, status);
  if (program.ok()) RefuseRun(**program, message.first_key, status);
  completions_->Poison(message.run, results, status);
}

Result<std::shared_ptr<Engine::Program>> Engine::ReadyProgram(uint64_t id) {
  auto it = programs_.find(id);
  if (it == programs_.end()) return context_.Here(NotFound("program " + std::to_string(id) + " is not registered"));
  PW_RETURN_IF_ERROR(it->second->status);
  if (it->second->compiles_left > 0) return context_.Here(Internal("a run overtook the compile of its program"));
  return it->second;
}

void Engine::WalkProgram(const std::shared_ptr<Program>& program, const wire::RunProgram& run,
                         std::span<const uint64_t> results) {
  if (plan_host_ == nullptr) plan_host_ = std::make_shared<PlanHost>(*this);
  plan_host_->Begin(program, run, results, CheckPlanMemory(*program, run));
  ContinueWalk();
}

void Engine::ContinueWalk() {
  if (plan_host_ == nullptr || !plan_host_->walking()) return;
  if (!plan_host_->Continue()) {
    parking_.Park();
    return;
  }
  const Status status = plan_host_->Finish();
  const bool spans_hosts = plan_host_->program().spans_hosts;
  const std::shared_ptr<PendingRun> pending = plan_host_->TakePending();
  if (spans_hosts) {
    if (const Status& failure = status.ok() ? plan_host_->failure() : status; !failure.ok()) {
      gangs_->AbortElsewhere(pending->run, failure);
    }
  }
  if (!status.ok()) {
    root_causes_.Remember(std::string(status.message()), status);  // it names host and node already
    pending->Fail(status);
  }
  completions_->Enqueued(pending);
}

}  // namespace pathways::worker
