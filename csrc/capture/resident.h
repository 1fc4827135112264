// Residents: the state of a captured step, which stays at the workers from replay to replay.
//
// A replay's parameters, optimizer state and gradients are many, and between two replays nobody looks at most of them.
// So a value that a replay has made for a cell is no value of ours at first: the cell says that it is *resident* at a
// place of the program (wire::RunInPlace), and the next replay names neither it nor its successor. Whoever asks such a
// cell for its value has one made then, a handle of the buffer that lies in the place, and the next replay is told to
// take its argument from there and to put the result under another id. What was asked for is never changed.
//
// A place that is only read keeps its value in the cell, which is *watched*: it tells when the value is replaced.
//
// Ownership: shared by the replay and the cells that are resident here; it knows cells weakly. It owns the buffers in
//            written places until somebody asks for them.
// Threads:   Bind and Run by one thread at a time; cells call from any thread.
// Locks:     one for all residents of the process, because a cell may move from one to another. It is held while a run
//            is submitted, and taken before a cell's own lock, never while one is held.
#ifndef PTPATHWAYS_CAPTURE_RESIDENT_H_
#define PTPATHWAYS_CAPTURE_RESIDENT_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/session.h"
#include "csrc/values/buffer.h"
#include "csrc/values/value.h"

namespace pathways::capture {

// What an argument or a result of a captured step is like: one tensor, and how it lies on a slice.
struct Port {
  static Port Of(const values::Value& value);

  // Whether both are of one type, and lie in the same way on the same devices.
  bool IsAs(const Port& other) const;
  // OK when `value` is such a one. Else FAILED_PRECONDITION. `value`: null when the buffer of the argument is gone.
  Status Check(const values::Value* value, size_t argument) const;
  TensorType shard_type() const { return tiling == nullptr ? type->type : tiling->ShardType(type->type); }
  // A new one, pending.
  values::ValuePtr NewValue(const std::shared_ptr<values::ClientState>& client) const;
  // A new one: a logical buffer, or why there is none.
  values::ValuePtr NewValue(const std::shared_ptr<values::ClientState>& client,
                            Result<std::shared_ptr<client::LogicalBuffer>> buffer) const;
  // "f32[8,4]{2,1 of 2} on PathwaysDevice(id=0)"
  std::string ToString() const;

  PJRT_Device* device = nullptr;
  values::ArrayTypePtr type;      // of the whole tensor
  TilingPtr tiling;               // null for one device
  values::DeviceListPtr devices;  // the cluster's numbers, by shard
};

// Why a program cannot run any more once its client is attached to another cluster.
Status LeftCluster(const client::Program& program);
// Whether a run can be given all of this: a shard of a buffer whose other shards live on elsewhere cannot go alone.
inline bool IsWhole(const client::ProgramArgument& argument) { return argument.buffer != nullptr; }

class Residents final : public values::CellHome, public std::enable_shared_from_this<Residents> {
 public:
  static constexpr size_t kNowhere = SIZE_MAX;

  struct Place {
    Port port;
    size_t argument = kNowhere;   // the program's argument that is read here
    size_t result = kNowhere;     // the program's result that is put here
    bool may_donate = false;      // the argument, if nobody else holds its value
    values::ValuePtr constant{};  // a value that no cell holds
  };

  Residents(std::shared_ptr<values::ClientState> client, std::shared_ptr<client::Program> program,
            std::vector<Place> places);

  // The value of `place` lies in `cell` from now on.
  void Bind(size_t place, const std::shared_ptr<values::BufferCell>& cell);

  struct Submitted {
    Status status;                                                // else no result has a value
    std::vector<std::shared_ptr<client::LogicalBuffer>> outputs;  // results without a place
  };
  // Submits a run. `arguments`: those without a place; `fed`: values that the caller holds, which are not given up even
  // if they are state, too. FAILED_PRECONDITION, with nothing changed: a cell is empty, or one of an argument holds
  // another kind of value.
  Result<Submitted> Run(std::vector<client::InPlaceArguments::Argument> arguments, std::vector<uint32_t> donated,
                        const std::set<const values::Value*>& fed);

  // Gives every cell its value. Afterwards nothing is resident here.
  void Release();

  // The same, with an error for a value in all places that results go to.
  void Fail(const Status& status);

  // CellHome:
  void CheckOut(size_t place) override;
  void CellChanged(size_t place) override;
  void CellLeft(size_t place) PW_REQUIRES(Lock()) override;

 private:
  struct Slot {
    Place of;
    std::weak_ptr<values::BufferCell> cell;
    uint64_t buffer = 0;   // what lies there when `owned`
    bool owned = false;    // no handle of it exists
    bool changed = false;  // listed in changed_
  };

  // That of all residents.
  static std::mutex& Lock();
  void CheckOutLocked(Slot& slot, size_t place) PW_REQUIRES(Lock());
  void MarkLocked(size_t place) PW_REQUIRES(Lock());
  void ReleaseLocked() PW_REQUIRES(Lock());
  void FailLocked(const Status& status) PW_REQUIRES(Lock());
  // The value of a place; null if its cell has none.
  values::ValuePtr ValueLocked(size_t place) PW_REQUIRES(Lock());
  void SettleLocked(size_t place, uint64_t buffer, const values::Value* before) PW_REQUIRES(Lock());

  const std::shared_ptr<values::ClientState> client_;
  const std::shared_ptr<client::Program> program_;
  std::vector<uint32_t> argument_places_, result_places_, other_results_;
  std::vector<Slot> slots_ PW_GUARDED_BY(Lock());
  std::vector<size_t> changed_ PW_GUARDED_BY(Lock());  // places that the next run has to name
  uint64_t last_run_ PW_GUARDED_BY(Lock()) = 0;
  std::shared_ptr<Event> done_ PW_GUARDED_BY(Lock());  // of that run
};

}  // namespace pathways::capture

#endif  // PTPATHWAYS_CAPTURE_RESIDENT_H_
