// PJRT_Buffer: the caller's handle of one value (value.h).
//
// Ownership: the caller's, until PJRT_Buffer_Destroy. It shares its value with held work and, after an adoption, with
//            other handles; Delete and donation drop its share, and then only type and device can be asked for. What
//            it holds lies in a cell, which captured steps share (replay.h): they put new values where the caller's
//            handle finds them.
// Threads:   every slot may be called from any thread, on one buffer too. Locks: BufferCell::mutex_ guards its value.
#ifndef PTPATHWAYS_PLUGIN_BUFFER_H_
#define PTPATHWAYS_PLUGIN_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/plugin/client.h"
#include "csrc/plugin/value.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::plugin {

class Residents;

// The place of a handle's value. It counts as one holder of the value. The value may be resident (resident.h): then it
// gets a form that can be shared when somebody asks for it.
class BufferCell {
 public:
  explicit BufferCell(std::shared_ptr<Value> value);
  ~BufferCell() { Drop(); }
  BufferCell(const BufferCell&) = delete;
  BufferCell& operator=(const BufferCell&) = delete;

  // Null once the handle was destroyed or deleted, or its value donated.
  std::shared_ptr<Value> value() const;
  bool is_empty() const;
  // Puts `value` in the place of what is there. False, and nothing happens, when there is nothing.
  bool Replace(std::shared_ptr<Value> value);
  // Gives the value up. False when that has happened before.
  bool Drop();

  // --- for residents, which call these under their lock
  struct View {
    std::shared_ptr<Value> value;
    std::shared_ptr<Residents> home;
    size_t place = 0;
  };
  View Look() const;
  // What is here (`before`, or whatever it is if that is null) becomes resident at `home`. False, and nothing happens,
  // when something else is here by now.
  bool Reside(std::shared_ptr<Residents> home, size_t place, const Value* before);
  // Tells `home` when `before`, which stays, is replaced or dropped. False as above.
  bool Watch(const std::shared_ptr<Residents>& home, size_t place, const Value* before);
  // The value in the form to share, if it is resident at `home`.
  void Settle(const Residents* home, std::shared_ptr<Value> value);
  // Forgets `home`.
  void Leave(const Residents* home);
  // As Replace, without telling anybody.
  void Overwrite(std::shared_ptr<Value> value);

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_. Without value_ and home_ the cell is empty; without value_ it is resident at home_, with both it
  // is watched from there.
  std::shared_ptr<Value> value_;
  std::shared_ptr<Residents> home_;
  size_t place_ = 0;
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
  PJRT_Buffer* first_ = nullptr;  // guarded by mutex_, as are the links of the buffers
};

// While one is alive, the cells of the buffers that this thread asks of with PJRT_Buffer_IsDeleted are noted, in order:
// callers look that way at every buffer of a tensor that lies on several devices, and at nothing else. One per thread.
class CellWatch {
 public:
  CellWatch();
  ~CellWatch();
  CellWatch(const CellWatch&) = delete;
  CellWatch& operator=(const CellWatch&) = delete;

  // Each once, where it was first asked of.
  const std::vector<std::shared_ptr<BufferCell>>& cells() const { return cells_; }
  void Note(const std::shared_ptr<BufferCell>& cell);

 private:
  std::vector<std::shared_ptr<BufferCell>> cells_;
};

}  // namespace pathways::plugin

struct PJRT_Buffer {
  explicit PJRT_Buffer(std::shared_ptr<pathways::plugin::Value> of);
  ~PJRT_Buffer();

  // The value, or the error that it was deleted or donated.
  pathways::Result<std::shared_ptr<pathways::plugin::Value>> Get() const;
  // Gives the value up. False when that has happened before.
  bool Drop() { return cell->Drop(); }

  const std::shared_ptr<pathways::plugin::ClientState> client;
  PJRT_Device* const device;
  const pathways::plugin::ArrayTypePtr array_type;
  const pathways::TensorType& type;  // of array_type
  const std::shared_ptr<pathways::plugin::BufferCell> cell;
  std::atomic<int64_t> external_references{0};

 private:
  friend class pathways::plugin::LiveBuffers;
  PJRT_Buffer* before_ = nullptr;
  PJRT_Buffer* after_ = nullptr;
};

namespace pathways::plugin {

// How what the calling thread uploads lies on a slice of several devices.
struct UploadLayout {
  enum class Kind {
    kBatch,   // its first dimension divided over the devices where that is possible, else a copy on each
    kCopy,    // a copy on each device
    kTiling,  // as `tiling` says, for tensors of its rank on as many devices; others as kBatch
  } kind = Kind::kBatch;
  TilingPtr tiling;
};
// Gives what was set before.
UploadLayout SetUploadLayout(UploadLayout layout);
// Null for a slice of one device.
TilingPtr UploadTiling(const TensorType& type, size_t devices);

// Uploads a dense, row-major tensor; each device of the slice gets its part.
Result<std::shared_ptr<Value>> UploadValue(const std::shared_ptr<ClientState>& client, PJRT_Device* device,
                                           const TensorType& type, const void* dense, const TilingPtr& tiling);

// A copy of `value` on `device`, submitted at once, held behind what its device's gangs hold.
Result<std::shared_ptr<Value>> CopyValue(const std::shared_ptr<Value>& value, PJRT_Device* device);
// Writes bytes [offset, offset + size) of the value, dense and row-major, to `destination`.
std::shared_ptr<Event> FetchValue(const std::shared_ptr<Value>& value, void* destination, uint64_t offset,
                                  uint64_t size);

// Makes the next calls of PJRT_Client_BufferFromHostBuffer of this thread return handles of `values`, one each, instead
// of uploading; an empty list takes that back. Takes over the caller's holds on the values. See adopt.h.
void SetNextUploads(std::vector<std::shared_ptr<Value>> values);

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_BUFFER_H_
