// PJRT_Buffer: the caller's handle of one value (value.h).
//
// Ownership: the caller's, until PJRT_Buffer_Destroy. It shares its value with held work and, after an adoption, with
//            other handles; Delete and donation drop its share, and then only type and device can be asked for. What
//            it holds lies in a cell, which captured steps share (capture/replay.h): they put new values where the
//            caller's handle finds them.
// Threads:   every method may be called from any thread, on one buffer too.
// Locks:     BufferCell::mutex_ guards its value; a home is called without it. LiveBuffers::mutex_ is a leaf.
#ifndef PTPATHWAYS_VALUES_BUFFER_H_
#define PTPATHWAYS_VALUES_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/values/client.h"
#include "csrc/values/value.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::values {

// Where a cell's value lies while the cell does not hold it (capture/resident.h), or who watches the one that it holds.
class CellHome {
 public:
  // Gives the cell of a place its value.
  virtual void CheckOut(size_t place) = 0;
  // A cell whose value lies or is watched here has got another value, or is gone.
  virtual void CellChanged(size_t place) = 0;
  // The same, from a call of other homes, under the lock of all.
  virtual void CellLeft(size_t place) = 0;

 protected:
  ~CellHome() = default;
};

// The place of a handle's value. It counts as one holder of the value. The value may be resident at a home: then it
// gets a form that can be shared when somebody asks for it.
class BufferCell {
 public:
  explicit BufferCell(ValuePtr value);
  ~BufferCell() { Drop(); }
  BufferCell(const BufferCell&) = delete;
  BufferCell& operator=(const BufferCell&) = delete;

  // Null once the handle was destroyed or deleted, or its value donated.
  ValuePtr value() const;
  bool is_empty() const;
  // Puts `value` in the place of what is there. False, and nothing happens, when there is nothing.
  bool Replace(ValuePtr value);
  // Gives the value up. False when that has happened before.
  bool Drop();

  // --- for homes, which call these under their lock
  struct View {
    ValuePtr value;
    std::shared_ptr<CellHome> home;
    size_t place = 0;
  };
  View Look() const;
  // What is here (`before`, or whatever it is if that is null) becomes resident at `home`. False, and nothing happens,
  // when something else is here by now.
  bool Reside(std::shared_ptr<CellHome> home, size_t place, const Value* before);
  // Tells `home` when `before`, which stays, is replaced or dropped. False as above.
  bool Watch(const std::shared_ptr<CellHome>& home, size_t place, const Value* before);
  // The value in the form to share, if it is resident at `home`.
  void Settle(const CellHome* home, ValuePtr value);
  // Forgets `home`.
  void Leave(const CellHome* home);
  // As Replace, without telling anybody.
  void Overwrite(ValuePtr value);

 private:
  mutable std::mutex mutex_;
  // Without value_ and home_ the cell is empty; without value_ it is resident at home_, with both it is watched from
  // there.
  ValuePtr value_ PW_GUARDED_BY(mutex_);
  std::shared_ptr<CellHome> home_ PW_GUARDED_BY(mutex_);
  size_t place_ PW_GUARDED_BY(mutex_) = 0;
};

// FAILED_PRECONDITION when a value that is put into `cell` would be lost: its handle is gone, or has given its value
// up.
Status CheckTakes(const std::shared_ptr<BufferCell>& cell);

// The handles that a client's callers have.
class LiveBuffers {
 public:
  void Add(PJRT_Buffer* buffer);
  void Remove(PJRT_Buffer* buffer);
  // The cells of those on `device`.
  std::vector<std::shared_ptr<BufferCell>> CellsOn(const PJRT_Device* device);

 private:
  std::mutex mutex_;
  PJRT_Buffer* first_ PW_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace pathways::values

struct PJRT_Buffer {
  explicit PJRT_Buffer(pathways::values::ValuePtr of);
  ~PJRT_Buffer();

  // The value, or the error that it was deleted or donated.
  pathways::Result<pathways::values::ValuePtr> Get() const;
  // Gives the value up. False when that has happened before.
  bool Drop() { return cell->Drop(); }

  const std::shared_ptr<pathways::values::ClientState> client;
  PJRT_Device* const device;
  const pathways::values::ArrayTypePtr array_type;
  const pathways::TensorType& type;  // of array_type
  const std::shared_ptr<pathways::values::BufferCell> cell;
  std::atomic<int64_t> external_references{0};

 private:
  friend class pathways::values::LiveBuffers;
  // Guarded by the mutex of its client's LiveBuffers.
  PJRT_Buffer* before_ = nullptr;
  PJRT_Buffer* after_ = nullptr;
};

#endif  // PTPATHWAYS_VALUES_BUFFER_H_
