// GangScheduler: puts the gangs of all clients into one order, and lets a gang go only while the queues of
// its devices are short (paper 4.4).
//
// A pure state machine: events in, decisions out. No socket, clock or thread inside; time comes as an argument.
// Ownership: owned by the controller's state. Threads: none inside; the owner serialises calls.
//
// Each client asks for at most one gang at a time: the head of its stream of messages. A gang is granted on all its
// devices at once or not at all, so nobody ever holds one device while waiting for another and no cycle of waiting can
// arise. Grants are handed out in the policy's order; a gang that cannot be placed closes its devices to those behind
// it, so a wide gang is not starved by narrow ones. Grants carry rising sequence numbers, and the caller
// sends them in the order granted: that is the same order on every host, whatever islands a gang spans.
//
// How long a gang will take is the moving average of what runs of the same function or program took. The work queued
// on a device is the sum of these estimates over its gangs in flight.
#ifndef PTPATHWAYS_SCHEDULER_GANG_SCHEDULER_H_
#define PTPATHWAYS_SCHEDULER_GANG_SCHEDULER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/scheduler/fair_shares.h"
#include "csrc/scheduler/gang.h"
#include "csrc/scheduler/policy.h"

namespace pathways::scheduler {

// What a part's end means for the client.
enum class PartResult : uint8_t {
  kIgnored,     // an unknown run, or a part that has ended before
  kUnfinished,  // other parts are still out, or the client has been told of the failure
  kEnded,       // the last part: all went well
  kFailed,      // the first part that failed
};

struct ClientAccount {
  double weight = 1;
  int32_t priority = 0;
  uint64_t submitted = 0;  // gangs granted
  uint64_t finished = 0;   // gangs of which every part has ended
  double device_seconds = 0;
  double waited_seconds = 0;  // between asking and the grant
};

// Of a host that has not finished all it was given: the device on which nothing has ended for longest.
struct Unfinished {
  uint32_t device = 0;
  uint32_t gangs = 0;     // in flight there
  uint64_t still_ms = 0;  // since something ended there, or, where nothing was in flight then, was granted
  // The gang granted first of those in flight there:
  uint64_t run = 0;
  uint32_t client = 0;
  uint64_t work = 0;
  uint64_t age_ms = 0;  // since it was granted
};

class GangScheduler {
 public:
  explicit GangScheduler(SchedulerOptions options) : options_(options), shares_(options.queue_us) {}

  const SchedulerOptions& options() const { return options_; }
  // Islands are numbered in the order added, devices by the caller.
  uint32_t AddIsland() { return shares_.AddIsland(); }
  void AddClient(uint32_t client, double weight, int32_t priority);

  // Asks for a gang. True: granted, and in flight. False: it waits, and TakeGrant will name it; asking again for the
  // same run changes nothing. ALREADY_EXISTS for a run in flight.
  Result<bool> Ask(const Gang& gang, uint64_t now_ms);
  // The next gang that may go, which is then in flight; nullopt when none of those that ask can.
  struct Grant {
    uint32_t client = 0;
    uint64_t run = 0;
  };
  std::optional<Grant> TakeGrant(uint64_t now_ms);
  // Place of the gang granted last in the cluster's order, counted from 1.
  uint64_t last_sequence() const { return sequence_; }

  // A host's part of a gang has ended after `device_us` on its devices.
  PartResult PartDone(uint64_t run, uint32_t host, uint64_t device_us, bool ok, uint64_t now_ms);
  // Ends the parts of a lost host. The runs whose first failure that is; asking gangs that need the host are withdrawn.
  std::vector<uint64_t> HostLost(uint32_t host, uint64_t now_ms);
  // Forgets a client that is gone, and gives back what its gangs held.
  void DropClient(uint32_t client, uint64_t now_ms);
  // The function or program is gone: its estimate is not needed any more.
  void ForgetWork(uint64_t work) { estimates_.erase(work); }

  // Where a gang in flight runs; nullptr when it has ended. Valid until then.
  const GangShape* ShapeOf(uint64_t run) const {
    const auto flight = flights_.find(run);
    return flight == flights_.end() ? nullptr : flight->second.gang.shape.get();
  }

  // By host, but for those of which every gang in flight was granted less than `at_least_ms` ago. It looks at every
  // part in flight that is older.
  std::map<uint32_t, Unfinished> UnfinishedByHost(uint64_t now_ms, uint64_t at_least_ms) const;

  // --- for the status
  size_t in_flight() const { return flights_.size(); }
  size_t in_flight(uint32_t island) const { return shares_.in_flight(island); }
  // Gangs granted on the island so far.
  uint64_t granted(uint32_t island) const { return shares_.granted(island); }
  // Gangs that ask for a place on the island.
  size_t asking(uint32_t island) const;
  // Estimated work on the fullest of the island's devices.
  double queued_us(uint32_t island) const;
  bool is_asking(uint32_t client) const { return asking_.contains(client); }
  size_t in_flight_of(uint32_t client) const;
  const std::map<uint32_t, ClientAccount>& accounts() const { return accounts_; }
  // Moving average of how long a run takes, in microseconds; 0 when it has not been measured.
  double estimate_us(uint64_t work) const;

 private:
  struct DeviceQueue {
    uint32_t gangs = 0;
    uint32_t waiters = 0;  // asking gangs that found it full
    double queued_us = 0;
    uint64_t closed_in = 0;  // the search in which an earlier gang has claimed it
    uint64_t ended_ms = 0;   // when a gang's part last ended there
    uint32_t island = 0;
  };
  struct Asking {
    Gang gang;
    uint64_t since_ms = 0;
    std::optional<uint32_t> blocked_on;  // the device that was full
  };
  struct Flight {
    Gang gang;
    double estimate_us = 0;
    double longest_us = 0;
    uint64_t sequence = 0;  // its place in the cluster's order
    uint64_t granted_ms = 0;
    uint32_t parts_left = 0;
    bool failed = false;
    std::vector<bool> ended;  // by part; empty for a gang of one part
  };

  double EstimateOf(uint64_t work) const;
  bool IsOpen(const DeviceQueue& queue) const {
    return queue.gangs < 2 || queue.queued_us < static_cast<double>(options_.queue_us);
  }
  void Reserve(const GangShape& shape);
  // The first device that is full or closed.
  std::optional<uint32_t> FirstObstacle(const GangShape& shape, std::optional<uint32_t> look_first) const;
  bool GoesBefore(const Asking& a, const Asking& b) const;
  void Start(const Gang& gang, uint64_t now_ms);
  void StopWaiting(Asking& asking);
  void EndPart(Flight& flight, size_t part, double device_us, uint64_t now_ms);
  void EndGang(const Flight& flight);

  const SchedulerOptions options_;
  FairShares shares_;
  std::vector<DeviceQueue> devices_;
  std::map<uint32_t, ClientAccount> accounts_;
  std::map<uint32_t, Asking> asking_;  // by client
  std::unordered_map<uint64_t, Flight> flights_;
  std::unordered_map<uint64_t, double> estimates_;  // microseconds
  uint64_t sequence_ = 0;                           // gangs granted so far
  uint64_t search_ = 0;
  bool changed_ = false;  // whether a gang that could not go before may go now
};

}  // namespace pathways::scheduler

#endif  // PTPATHWAYS_SCHEDULER_GANG_SCHEDULER_H_
