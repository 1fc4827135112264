// Fleet: the simulated devices of a cluster. No arithmetic: a computation occupies its devices for its cost.
//
// As real accelerators, a device takes computations from its queue strictly in order and is never interrupted. A gang
// (one computation over several devices, with collectives) starts when all its devices have it at the head of their
// queues, with their inputs there. Until then those that are there stand still. So devices that get two gangs in
// different orders stand still for ever: that is the deadlock which one scheduler per island prevents (paper 4.4).
//
// Ownership: owns devices, queues and gangs; values are shared with buffers. Threads: none inside; one thread.
#ifndef PTPATHWAYS_SIM_FLEET_H_
#define PTPATHWAYS_SIM_FLEET_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/sim/timeline.h"
#include "csrc/sim/trace.h"
#include "csrc/sim/value.h"

namespace pathways::sim {

// One host's share of a run: counts down the computations that end it.
class RunPart {
 public:
  virtual ~RunPart() = default;
  // A computation of this part ended on a device at `at` after `busy_ns` of work.
  virtual void DeviceDone(uint32_t device, int64_t at, int64_t busy_ns, const Status& error) = 0;
};

// The same on all hosts of one gang. A run executes a function `occurrence` times before this.
struct GangId {
  uint64_t run = 0;
  uint64_t function = 0;
  uint32_t occurrence = 0;
  friend bool operator==(const GangId&, const GangId&) = default;
};

using DeviceList = std::shared_ptr<const std::vector<uint32_t>>;

struct Launch {
  GangId id;
  std::shared_ptr<const std::string> what;  // "function 'f' (train.py:12)", for errors
  uint32_t client = 0;
  uint32_t program = 0;  // names of the trace
  uint32_t node = 0;
  int64_t cost_ns = 0;
  DeviceList devices;  // that must meet; nullptr: each goes alone
};

class Fleet {
 public:
  Fleet(Timeline* timeline, Trace* trace) : timeline_(timeline), trace_(trace) {}
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  void AddDevices(uint32_t count) { devices_.resize(devices_.size() + count); }

  // Puts one computation at the end of the queues of `local`, with the inputs of each. Gives the value that stands for
  // its outputs on each of them, in the same order.
  using Inputs = std::vector<std::shared_ptr<Value>>;
  void Enqueue(const Launch& launch, const std::vector<uint32_t>& local, std::vector<Inputs> inputs,
               const std::shared_ptr<RunPart>& part, std::vector<std::shared_ptr<Value>>* outputs);

  // A host cannot launch its `member_count` devices' part of this gang: it fails on all, instead of standing still.
  void FailGang(const Launch& launch, uint32_t member_count, const Status& error);
  // Devices that are gone: their queues, and every gang that needs them, fail.
  void LoseDevices(uint32_t first, uint32_t count, const Status& error);

  // The gangs that wait for each other in a circle, and so for ever: ABORTED naming them, their clients and devices.
  // OK when there is no such circle.
  Status FindDeadlock() const;
  // Fails the gangs of such a circle, so that the devices go on; what FindDeadlock said.
  Status BreakDeadlock();
  // Gangs some of whose devices stand still waiting for others.
  size_t waiting_gangs() const { return waiting_; }
  size_t queued(uint32_t device) const { return devices_[device].queue.size(); }
  // When the last computation was put into a queue; what a benchmark of dispatch waits for.
  int64_t last_enqueue() const { return last_enqueue_; }
  uint64_t enqueued() const { return enqueued_; }
  uint64_t ended() const { return ended_; }

 private:
  struct Item;
  struct Gang {
    GangId id;
    std::shared_ptr<const std::string> what;
    uint32_t client = 0, program = 0, node = 0;
    int64_t cost_ns = 0;
    uint32_t members = 0;
    uint32_t arrived = 0;
    int64_t latest = 0;
    DeviceList devices;
    std::vector<std::shared_ptr<Item>> items;  // those that arrived
    Status error;
    bool failed_early = false;  // members need not wait for each other any more
    uint32_t ended = 0;         // members that ended, of a gang that failed early
    bool registered = false;    // in gangs_
  };
  struct Item : Value {
    bool computed() const override { return true; }
    std::shared_ptr<Gang> gang;
    Inputs inputs;
    std::shared_ptr<RunPart> part;
    uint32_t device = 0;
    int64_t queued_at = 0;
    int64_t arrived_at = 0;
    size_t missing = 0;  // inputs not settled
    enum class State : uint8_t { kQueued, kWaitsForInputs, kWaitsForGang, kRuns, kEnded } state = State::kQueued;
  };
  struct Device {
    std::deque<std::shared_ptr<Item>> queue;
    int64_t free_at = 0;
    bool touched = false;
    Status lost;
  };
  struct GangIdHash {
    size_t operator()(const GangId& id) const {
      return (id.run * 0x9E3779B97F4A7C15u) ^ (id.function * 0xC2B2AE3D27D4EB4Fu) ^ id.occurrence;
    }
  };

  std::shared_ptr<Gang> FindOrMake(const Launch& launch);
  void Touch(uint32_t device);
  // Advances every touched device; flat, however long the chain of consequences.
  void Drain();
  void Advance(uint32_t device);
  void InputsCame(const std::shared_ptr<Item>& item);
  void Arrive(const std::shared_ptr<Item>& item);
  void Start(const std::shared_ptr<Gang>& gang);
  void EndAll(const std::shared_ptr<Gang>& gang, int64_t start, int64_t end);
  void End(const std::shared_ptr<Item>& item, int64_t start, int64_t end, const Status& error);
  void FailEarly(const std::shared_ptr<Gang>& gang, const Status& error);
  void Forget(Gang& gang);
  static bool StandsStill(const Gang& gang) {
    return gang.arrived > 0 && gang.arrived < gang.members && !gang.failed_early;
  }
  std::vector<const Gang*> Circle() const;

  Timeline* const timeline_;
  Trace* const trace_;
  std::vector<Device> devices_;
  std::unordered_map<GangId, std::shared_ptr<Gang>, GangIdHash> gangs_;  // that must meet and have not ended
  std::vector<uint32_t> touched_;
  bool draining_ = false;
  bool any_lost_ = false;
  int64_t last_enqueue_ = 0;
  uint64_t enqueued_ = 0;
  uint64_t ended_ = 0;
  size_t waiting_ = 0;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_FLEET_H_
