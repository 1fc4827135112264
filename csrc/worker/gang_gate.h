// GangGate: lets the gangs of a computation over several hosts onto each device one at a time, in the order in which
// they were launched, as a device that cannot be preempted would.
//
// The engine enqueues a gang's execution at once, with an argument that is not there yet: the number of the shard. The
// gate gives that number when all earlier gangs of the device have ended. So the order on a device is that of the
// island, whatever threads the plugin executes on, and never are two gangs of one device inside their collectives.
//
// Ownership: owns the arguments; borrows the listener, which must outlive the plugin's last execution.
// Threads:   Issue and Enter: the engine's. Executions end on the plugin's threads, and the listener is called there.
// Locks:     one per device, not held across a callback or a call of the plugin.
#ifndef PTPATHWAYS_WORKER_GANG_GATE_H_
#define PTPATHWAYS_WORKER_GANG_GATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/gang.h"
#include "csrc/pjrt/client.h"

namespace pathways::worker {

using GangPtr = std::shared_ptr<const collective::Gang>;

// What happens at the gate.
class GangTurns {
 public:
  virtual ~GangTurns() = default;
  // The device belongs to this gang from now on, until End.
  virtual void Begin(int device, const GangPtr& gang, uint32_t shard) = 0;
  virtual void End(int device) = 0;
  // The gang's part on a device has failed, in its turn or before, because of an argument.
  virtual void Failed(const GangPtr& gang, const Status& status) = 0;
};

class GangGate {
 public:
  GangGate(std::shared_ptr<pjrt::Client> client, GangTurns* turns);
  ~GangGate();  // what is still held back never starts

  // The argument of one launch on a device.
  class Ticket {
   public:
    Ticket() = default;
    pjrt::Buffer* buffer() { return &buffer_; }

   private:
    friend class GangGate;
    pjrt::Buffer buffer_;
    std::shared_ptr<pjrt::AsyncBuffer> fill_;
  };
  Result<Ticket> Issue(int device);

  // The shard has been enqueued with its ticket; `done` is set when it has ended.
  void Enter(int device, Ticket ticket, GangPtr gang, uint32_t shard, const pjrt::EventHandle& done);

 private:
  struct Entry;
  struct Lane;
  static void Start(Lane& lane, std::shared_ptr<Entry> entry, const std::shared_ptr<pjrt::AsyncBuffer>& fill);
  static void Ended(const std::shared_ptr<Lane>& lane, const std::shared_ptr<Entry>& entry, const Status& status);

  const std::shared_ptr<pjrt::Client> client_;
  std::vector<std::shared_ptr<Lane>> lanes_;  // by device
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_GANG_GATE_H_
