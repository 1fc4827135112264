#include "csrc/values/buffer.h"

#include <utility>

PJRT_Buffer::PJRT_Buffer(pathways::values::ValuePtr of)
    : client(of->client()),
      device(of->device()),
      array_type(of->array_type()),
      type(array_type->type),
      cell(std::make_shared<pathways::values::BufferCell>(std::move(of))) {
  client->live().Add(this);
}

PJRT_Buffer::~PJRT_Buffer() {
  client->live().Remove(this);
  Drop();
}

pathways::Result<pathways::values::ValuePtr> PJRT_Buffer::Get() const {
  if (pathways::values::ValuePtr value = cell->value()) return value;
  return pathways::InvalidArgument("the buffer " + type.ToString() + " on " + device->description.to_string +
                                   " was deleted or donated");
}

namespace pathways::values {
BufferCell::BufferCell(ValuePtr value) : value_(std::move(value)) { value_->AddHolder(); }

ValuePtr BufferCell::value() const {
  for (;;) {
    View view = Look();
    if (view.value != nullptr || view.home == nullptr) return std::move(view.value);
    view.home->CheckOut(view.place);
  }
}

bool BufferCell::is_empty() const {
  std::lock_guard lock(mutex_);
  return value_ == nullptr && home_ == nullptr;
}

Status CheckTakes(const std::shared_ptr<BufferCell>& cell) {
  if (cell != nullptr && !cell->is_empty()) return OkStatus();
  return FailedPrecondition("a tensor that a captured step writes lies in other memory than when it was bound");
}

BufferCell::View BufferCell::Look() const {
  std::lock_guard lock(mutex_);
  return {value_, home_, place_};
}

bool BufferCell::Replace(ValuePtr value) {
  std::shared_ptr<CellHome> home;
  size_t place;
  {
    std::lock_guard lock(mutex_);
    if (value_ == nullptr && home_ == nullptr) return false;
    value->AddHolder();
    value_.swap(value);
    home_.swap(home);
    place = place_;
  }
  if (value != nullptr) value->DropHolder();
  if (home != nullptr) home->CellChanged(place);
  return true;
}

bool BufferCell::Drop() {
  ValuePtr dropped;
  std::shared_ptr<CellHome> home;
  size_t place;
  {
    std::lock_guard lock(mutex_);
    dropped.swap(value_);
    home_.swap(home);
    place = place_;
  }
  if (dropped != nullptr) dropped->DropHolder();
  if (home != nullptr) home->CellChanged(place);
  return dropped != nullptr || home != nullptr;
}

bool BufferCell::Reside(std::shared_ptr<CellHome> home, size_t place, const Value* before) {
  ValuePtr dropped;
  std::shared_ptr<CellHome> left;
  size_t left_place;
  {
    std::lock_guard lock(mutex_);
    if (value_ == nullptr && home_ == nullptr) return false;
    if (before != nullptr && value_.get() != before) return false;
    if (value_ == nullptr && home_ == home) return false;
    dropped.swap(value_);
    left.swap(home_);
    left_place = std::exchange(place_, place);
    home_ = std::move(home);
  }
  if (dropped != nullptr) dropped->DropHolder();
  if (left != nullptr) left->CellLeft(left_place);
  return true;
}

bool BufferCell::Watch(const std::shared_ptr<CellHome>& home, size_t place, const Value* before) {
  std::shared_ptr<CellHome> left;
  size_t left_place;
  {
    std::lock_guard lock(mutex_);
    if (value_ == nullptr || value_.get() != before) return false;
    left.swap(home_);
    left_place = std::exchange(place_, place);
    home_ = home;
  }
  if (left != nullptr && left != home) left->CellLeft(left_place);
  return true;
}

void BufferCell::Settle(const CellHome* home, ValuePtr value) {
  std::shared_ptr<CellHome> left;
  std::lock_guard lock(mutex_);
  if (home_.get() != home || value_ != nullptr) return;
  value->AddHolder();
  value_ = std::move(value);
  left.swap(home_);
}

void BufferCell::Leave(const CellHome* home) {
  std::shared_ptr<CellHome> left;
  std::lock_guard lock(mutex_);
  if (home_.get() == home && value_ != nullptr) left.swap(home_);
}

void BufferCell::Overwrite(ValuePtr value) {
  std::lock_guard lock(mutex_);
  if (value_ == nullptr) return;
  value->AddHolder();
  value_.swap(value);
  value->DropHolder();
}

void LiveBuffers::Add(PJRT_Buffer* buffer) {
  std::lock_guard lock(mutex_);
  buffer->after_ = first_;
  if (first_ != nullptr) first_->before_ = buffer;
  first_ = buffer;
}

void LiveBuffers::Remove(PJRT_Buffer* buffer) {
  std::lock_guard lock(mutex_);
  (buffer->before_ != nullptr ? buffer->before_->after_ : first_) = buffer->after_;
  if (buffer->after_ != nullptr) buffer->after_->before_ = buffer->before_;
}

std::vector<std::shared_ptr<BufferCell>> LiveBuffers::CellsOn(const PJRT_Device* device) {
  std::vector<std::shared_ptr<BufferCell>> cells;
  std::lock_guard lock(mutex_);
  for (const PJRT_Buffer* each = first_; each != nullptr; each = each->after_) {
    if (each->device == device) cells.push_back(each->cell);
  }
  return cells;
}

}  // namespace pathways::values
