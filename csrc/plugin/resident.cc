#include "csrc/plugin/resident.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/plugin/client.h"

namespace pathways::plugin {
namespace {

using Row = std::vector<std::shared_ptr<Value>>;

std::mutex& Lock() {
  static std::mutex* const mutex = new std::mutex;  // leaked: cells may be destroyed after static destructors
  return *mutex;
}

}  // namespace

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

Status LeftCluster(const client::Program& program) {
  return FailedPrecondition("the step was captured in cluster '" + program.session()->cluster() +
                            "', which this process has left; capture it anew");
}

bool IsWhole(const client::ProgramArgument& argument) {
  return argument.buffer != nullptr ||
         std::all_of(argument.shards.begin(), argument.shards.end(),
                     [](const client::Shard& shard) { return shard.buffer->devices().size() == 1; });
}

Residents::Residents(std::shared_ptr<ClientState> client, std::shared_ptr<client::Program> program,
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

void Residents::Bind(size_t place, std::span<const std::shared_ptr<BufferCell>> cells) {
  std::lock_guard lock(Lock());
  Slot& slot = slots_[place];
  CheckOutLocked(slot, place);
  for (const std::weak_ptr<BufferCell>& old : slot.cells) {
    if (const std::shared_ptr<BufferCell> cell = old.lock()) cell->Leave(this);
  }
  slot.cells.assign(cells.begin(), cells.end());
  MarkLocked(place);
}

void Residents::CheckOut(size_t place) {
  std::lock_guard lock(Lock());
  CheckOutLocked(slots_[place], place);
}

void Residents::CheckOutLocked(Slot& slot, size_t place) {
  if (!std::exchange(slot.owned, false)) return;
  std::vector<uint32_t> devices;
  for (const PJRT_Device* device : slot.of.devices) devices.push_back(device->cluster_device);
  const auto buffer = std::make_shared<client::LogicalBuffer>(program_->session(), slot.buffer, std::move(devices),
                                                              slot.of.type->type, done_);
  for (size_t i = 0; i < slot.cells.size() && i < slot.of.devices.size(); ++i) {
    const std::shared_ptr<BufferCell> cell = slot.cells[i].lock();
    if (cell == nullptr) continue;
    auto value = std::make_shared<Value>(client_, slot.of.devices[i], slot.of.type);
    value->Resolve(client::Shard{buffer, static_cast<uint32_t>(i)});
    cell->Settle(this, std::move(value));
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
    for (const std::weak_ptr<BufferCell>& weak : slots_[place].cells) {
      if (const std::shared_ptr<BufferCell> cell = weak.lock()) cell->Leave(this);
    }
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
    for (size_t i = 0; i < slot.cells.size() && i < slot.of.devices.size(); ++i) {
      const std::shared_ptr<BufferCell> cell = slot.cells[i].lock();
      if (cell == nullptr) continue;
      auto value = std::make_shared<Value>(client_, slot.of.devices[i], slot.of.type);
      value->Resolve(Result<client::Shard>(status));
      cell->Overwrite(std::move(value));
    }
  }
}

Row Residents::ValuesLocked(size_t place) {
  if (!slots_[place].of.constant.empty()) return slots_[place].of.constant;
  Row values;
  for (const std::weak_ptr<BufferCell>& weak : slots_[place].cells) {
    const std::shared_ptr<BufferCell> cell = weak.lock();
    if (cell == nullptr) return {};
    BufferCell::View view = cell->Look();
    if (view.value == nullptr && view.home != nullptr) {  // resident elsewhere, e.g. where another step has put it
      view.home->CheckOutLocked(view.home->slots_[view.place], view.place);
      view = cell->Look();
    }
    if (view.value == nullptr) return {};
    values.push_back(std::move(view.value));
  }
  return values;
}

Status Residents::CheckLocked(const Slot& slot, std::span<const std::shared_ptr<Value>> values) const {
  bool right = values.size() == slot.of.devices.size();
  for (size_t i = 0; right && i < values.size(); ++i) {
    right = values[i]->type() == slot.of.type->type && values[i]->device() == slot.of.devices[i];
  }
  if (right) return OkStatus();
  return FailedPrecondition(
      "argument " + std::to_string(slot.of.argument) + " of a captured step must be " + slot.of.type->type.ToString() +
      " on " + slot.of.devices[0]->description.to_string +
      (values.empty() ? ", but its buffer is gone"
                      : ", got " + values[0]->type().ToString() + " on " + values[0]->device()->description.to_string));
}

Result<Residents::Submitted> Residents::Run(std::vector<client::InPlaceArguments::Argument> arguments,
                                            std::vector<uint32_t> donated, const std::set<const Value*>& fed) {
  // What lies in the places is of the cluster that the program was made for, whatever the client is attached to now.
  client::Session& session = *program_->session();
  if (&session != client_->session().get()) return LeftCluster(*program_);
  session.AwaitWindow();
  std::vector<Row> before;  // by change; destroyed after the lock is let go
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
    Row& values = before.emplace_back();
    const size_t argument = slots_[place].of.argument;
    if (argument != kNowhere) {
      values = ValuesLocked(place);
      PW_RETURN_IF_ERROR(CheckLocked(slots_[place], values));
      Result<client::ProgramArgument> found = ArgumentOf(values);
      if (!found.ok()) {
        FailLocked(found.status());
        return Submitted{found.status(), {}};
      }
      change.before = *std::move(found);
      change.position = argument;
      const bool sole = std::all_of(values.begin(), values.end(), [&](const auto& value) {
        return value->HasOneHolder() && !fed.contains(value.get());
      });
      if (slots_[place].of.may_donate && sole && IsWhole(*change.before)) {
        run.donated.push_back(static_cast<uint32_t>(argument));
      }
    }
    run.changes.push_back(std::move(change));
  }
  Result<client::InPlaceResult> result = session.RunInPlace(program_, run);
  if (!result.ok()) {
    FailLocked(result.status());
    return Submitted{result.status(), {}};
  }
  last_run_ = result->run;
  done_ = result->done;
  std::vector<size_t> settled;
  settled.swap(changed_);
  for (const size_t place : settled) slots_[place].changed = false;
  for (size_t i = 0; i < settled.size(); ++i) SettleLocked(settled[i], result->placed[i], before[i]);
  return Submitted{OkStatus(), std::move(result->outputs)};
}

void Residents::SettleLocked(size_t place, uint64_t buffer, std::span<const std::shared_ptr<Value>> before) {
  Slot& slot = slots_[place];
  bool here = !slot.cells.empty() || !slot.of.constant.empty();
  if (slot.of.result == kNowhere) {
    for (size_t i = 0; i < slot.cells.size(); ++i) {
      const std::shared_ptr<BufferCell> cell = slot.cells[i].lock();
      here = cell != nullptr && cell->Watch(shared_from_this(), place, before[i].get()) && here;
    }
    // Shards that are put together have no id of their own to stay under.
    if (!here || (buffer & wire::kAssembledBit) != 0) MarkLocked(place);
    return;
  }
  slot.buffer = buffer;
  slot.owned = true;
  size_t residing = 0;
  for (size_t i = 0; i < slot.cells.size(); ++i) {
    const std::shared_ptr<BufferCell> cell = slot.cells[i].lock();
    residing += cell != nullptr && cell->Reside(shared_from_this(), place, before.empty() ? nullptr : before[i].get());
  }
  if (residing < slot.of.devices.size()) CheckOutLocked(slot, place);
}

}  // namespace pathways::plugin
