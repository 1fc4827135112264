// FairShares: what each client has received of each island's time, and whose turn that makes it (start-time fair
// queueing: a client's gangs are charged by their estimates, which are corrected when they end).
//
// A pure state machine. Ownership: plain value. Threads: none inside; its user serialises calls.
#ifndef PTPATHWAYS_SCHEDULER_FAIR_SHARES_H_
#define PTPATHWAYS_SCHEDULER_FAIR_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "csrc/scheduler/gang.h"

namespace pathways::scheduler {

class FairShares {
 public:
  // `queue_us`: the bound of a device's queue.
  explicit FairShares(uint64_t queue_us) : queue_us_(static_cast<double>(queue_us)) {}

  // Islands are numbered in the order added.
  uint32_t AddIsland();
  // A gang begins to ask. An idle client has no claim on the time it did not use.
  void Ask(const Gang& gang, double weight);
  // The gang with the lowest one goes first.
  double KeyOf(const Gang& gang) const;
  void Start(const Gang& gang);
  // So much on each device of the part, which may be less than nothing: a correction.
  void Charge(uint32_t client, const GangPart& part, double device_us, double weight);
  void End(const Gang& gang);
  void Drop(uint32_t client);

  size_t in_flight(uint32_t island) const { return islands_[island].in_flight; }
  // Gangs started so far.
  uint64_t granted(uint32_t island) const { return islands_[island].granted; }

 private:
  // A client's, on an island, in device-microseconds divided by its weight.
  struct Standing {
    double received = 0;
    uint32_t in_flight = 0;
  };
  struct Island {
    uint64_t granted = 0;
    size_t in_flight = 0;
    double virtual_time = 0;  // `received` of the client granted last, before its grant
    std::unordered_map<uint32_t, Standing> standings;
  };

  const double queue_us_;
  std::vector<Island> islands_;
};

}  // namespace pathways::scheduler

#endif  // PTPATHWAYS_SCHEDULER_FAIR_SHARES_H_
