#include "csrc/capture/resident.h"

#include <string>
#include <utility>

#include "csrc/values/client.h"

namespace pathways::capture {

std::mutex& Residents::Lock() {
  static std::mutex* const mutex = new std::mutex;  // leaked: cells may be destroyed after static destructors
  return *mutex;
}

Port Port::Of(const values::Value& value) {
  return {value.device(), value.array_type(), value.tiling(), value.device_list()};
}

bool Port::IsAs(const Port& other) const {
  return device == other.device && (type == other.type || type->type == other.type->type) && tiling == other.tiling &&
         (devices == other.devices || *devices == *other.devices);
}

Status Port::Check(const values::Value* value, size_t argument) const {
  if (value != nullptr && IsAs(Of(*value))) return OkStatus();
  return FailedPrecondition("argument " + std::to_string(argument) + " of a captured step must be " + ToString() +
                            (value == nullptr ? ", but its buffer is gone" : ", got " + Of(*value).ToString()));
}

values::ValuePtr Port::NewValue(const std::shared_ptr<values::ClientState>& client) const {
  return std::make_shared<values::Value>(client, device, type, tiling, devices);
}

values::ValuePtr Port::NewValue(const std::shared_ptr<values::ClientState>& client,
                                Result<std::shared_ptr<client::LogicalBuffer>> buffer) const {
  values::ValuePtr value = NewValue(client);
  value->Resolve(buffer.ok() ? Result<client::Shard>(client::Shard{*std::move(buffer), 0})
                             : Result<client::Shard>(buffer.status()));
  return value;
}

std::string Port::ToString() const {
  std::string text =
      type->type.ToString() + (tiling != nullptr ? tiling->ToString() : "") + " on " + device->description.to_string;
  for (size_t i = 0; i < devices->size(); ++i) text += (i == 0 ? " of " : ",") + std::to_string((*devices)[i]);
  return text;
}

Status LeftCluster(const client::Program& program) {
  return FailedPrecondition("the step was captured in cluster '" + program.session()->cluster() +
                            "', which this process has left; capture it anew");
}

Residents::Residents(std::shared_ptr<values::ClientState> client, std::shared_ptr<client::Program> program,
                     std::vector<Place> places)
    : client_(std::move(client)), program_(std::move(program)) {
  argument_places_.assign(program_->spec().inputs.size(), wire::kNoPlace);
  result_places_.assign(program_->spec().outputs.size(), wire::kNoPlace);
  slots_.resize(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    slots_[i].of = std::move(places[i]);
    const Place& place = slots_[i].of;
    if (place.argument != kNowhere) argument_places_[place.argument] = static_cast<uint32_t>(i);
    if (place.result != kNowhere) result_places_[place.result] = static_cast<uint32_t>(i);
    MarkLocked(i);
  }
  for (size_t k = 0; k < result_places_.size(); ++k) {
    if (result_places_[k] == wire::kNoPlace) other_results_.push_back(static_cast<uint32_t>(k));
  }
}

void Residents::MarkLocked(size_t place) {
  if (std::exchange(slots_[place].changed, true)) return;
  changed_.push_back(place);
}

void Residents::Bind(size_t place, const std::shared_ptr<values::BufferCell>& cell) {
  std::lock_guard lock(Lock());
  Slot& slot = slots_[place];
  CheckOutLocked(slot, place);
  if (const std::shared_ptr<values::BufferCell> old = slot.cell.lock()) old->Leave(this);
  slot.cell = cell;
  MarkLocked(place);
}

void Residents::CheckOut(size_t place) {
  std::lock_guard lock(Lock());
  CheckOutLocked(slots_[place], place);
}

void Residents::CheckOutLocked(Slot& slot, size_t place) {
  if (!std::exchange(slot.owned, false)) return;
  const Port& port = slot.of.port;
  auto buffer = std::make_shared<client::LogicalBuffer>(program_->session(), slot.buffer, *port.devices,
                                                        port.shard_type(), done_);
  if (const std::shared_ptr<values::BufferCell> cell = slot.cell.lock()) {
    cell->Settle(this, port.NewValue(client_, std::move(buffer)));
  }
  MarkLocked(place);
}

void Residents::CellChanged(size_t place) {
  std::lock_guard lock(Lock());
  CellLeft(place);
}

void Residents::CellLeft(size_t place) {
  CheckOutLocked(slots_[place], place);
  MarkLocked(place);
}

void Residents::Release() {
  std::lock_guard lock(Lock());
  ReleaseLocked();
}

void Residents::ReleaseLocked() {
  for (size_t place = 0; place < slots_.size(); ++place) {
    CheckOutLocked(slots_[place], place);
    if (const std::shared_ptr<values::BufferCell> cell = slots_[place].cell.lock()) cell->Leave(this);
    MarkLocked(place);
  }
  last_run_ = 0;
}

void Residents::Fail(const Status& status) {
  std::lock_guard lock(Lock());
  FailLocked(status);
}

void Residents::FailLocked(const Status& status) {
  ReleaseLocked();
  for (Slot& slot : slots_) {
    if (slot.of.result == kNowhere) continue;
    if (const std::shared_ptr<values::BufferCell> cell = slot.cell.lock()) {
      cell->Overwrite(slot.of.port.NewValue(client_, status));
    }
  }
}

values::ValuePtr Residents::ValueLocked(size_t place) {
  if (slots_[place].of.constant != nullptr) return slots_[place].of.constant;
  const std::shared_ptr<values::BufferCell> cell = slots_[place].cell.lock();
  if (cell == nullptr) return nullptr;
  values::BufferCell::View view = cell->Look();
  if (view.value == nullptr && view.home != nullptr) {  // resident elsewhere, e.g. where another step has put it
    view.home->CellLeft(view.place);
    view = cell->Look();
  }
  return std::move(view.value);
}

Result<Residents::Submitted> Residents::Run(std::vector<client::InPlaceArguments::Argument> arguments,
                                            std::vector<uint32_t> donated, const std::set<const values::Value*>& fed) {
  // What lies in the places is of the cluster that the program was made for, whatever the client is attached to now.
  client::Session& session = *program_->session();
  if (&session != client_->session().get()) return LeftCluster(*program_);
  session.runs().AwaitWindow();
  std::vector<values::ValuePtr> before;  // by change; destroyed after the lock is let go
  std::lock_guard lock(Lock());
  if (last_run_ != 0) {
    const std::optional<Status> outcome = done_->TryGet();
    if (outcome && !outcome->ok()) ReleaseLocked();  // what the hosts have is not known: begin anew
  }
  client::InPlaceArguments run;
  run.previous = last_run_;
  if (last_run_ == 0) {
    run.argument_places = argument_places_;
    run.result_places = result_places_;
  }
  run.arguments = std::move(arguments);
  run.results = other_results_;
  run.donated = std::move(donated);
  for (size_t i = 0; i < changed_.size(); ++i) {  // grows where the value lay in another place of ours
    const size_t place = changed_[i];
    client::InPlaceArguments::Change change;
    change.place = static_cast<uint32_t>(place);
    change.written = slots_[place].of.result != kNowhere;
    if (change.written) PW_RETURN_IF_ERROR(values::CheckTakes(slots_[place].cell.lock()));
    values::ValuePtr& value = before.emplace_back();
    const size_t argument = slots_[place].of.argument;
    if (argument != kNowhere) {
      value = ValueLocked(place);
      PW_RETURN_IF_ERROR(slots_[place].of.port.Check(value.get(), argument));
      Result<client::ProgramArgument> found = value->argument();
      if (!found.ok()) {
        FailLocked(found.status());
        return Submitted{found.status(), {}};
      }
      change.before = *std::move(found);
      change.position = argument;
      const bool sole = value->HasOneHolder() && !fed.contains(value.get());
      if (slots_[place].of.may_donate && sole && IsWhole(*change.before)) {
        run.donated.push_back(static_cast<uint32_t>(argument));
      }
    }
    run.changes.push_back(std::move(change));
  }
  Result<client::InPlaceResult> result = session.program_runs().RunInPlace(program_, run);
  if (!result.ok()) {
    FailLocked(result.status());
    return Submitted{result.status(), {}};
  }
  last_run_ = result->run;
  done_ = result->done;
  std::vector<size_t> settled;
  settled.swap(changed_);
  for (const size_t place : settled) slots_[place].changed = false;
  for (size_t i = 0; i < settled.size(); ++i) SettleLocked(settled[i], result->placed[i], before[i].get());
  return Submitted{OkStatus(), std::move(result->outputs)};
}

void Residents::SettleLocked(size_t place, uint64_t buffer, const values::Value* before) {
  Slot& slot = slots_[place];
  const std::shared_ptr<values::BufferCell> cell = slot.cell.lock();
  if (slot.of.result == kNowhere) {
    const bool here =
        slot.of.constant != nullptr || (cell != nullptr && cell->Watch(shared_from_this(), place, before));
    // Shards that are put together have no id of their own to stay under.
    if (!here || (buffer & wire::kAssembledBit) != 0) MarkLocked(place);
    return;
  }
  slot.buffer = buffer;
  slot.owned = true;
  if (cell == nullptr || !cell->Reside(shared_from_this(), place, before)) CheckOutLocked(slot, place);
}

}  // namespace pathways::capture
