// Policy: whose gang goes next when several clients ask.
//
// Ownership: plain values. Threads: plain values.
#ifndef PTPATHWAYS_SCHEDULER_POLICY_H_
#define PTPATHWAYS_SCHEDULER_POLICY_H_

#include <cstdint>
#include <string_view>

#include "csrc/base/status.h"

namespace pathways::scheduler {

enum class Policy : uint8_t {
  kFifo = 1,      // first come, first served
  kFair = 2,      // each client's device-seconds grow in proportion to its weight
  kPriority = 3,  // higher priority first, first come first served among equals
};

// "fifo", "fair" or "priority"; INVALID_ARGUMENT naming these three for another text.
Result<Policy> ParsePolicy(std::string_view name);
std::string_view PolicyName(Policy policy);

struct SchedulerOptions {
  Policy policy = Policy::kFifo;
  // Estimated work on a device at which it takes no further gang, unless fewer than two are queued there. Short enough
  // to arbitrate at the scale of milliseconds, long enough that no device idles for a round trip to the controller.
  uint64_t queue_us = 20'000;
  // False: every gang is granted when it asks, whatever is queued. For showing what the order is good for.
  bool arbitrate = true;
};

}  // namespace pathways::scheduler

#endif  // PTPATHWAYS_SCHEDULER_POLICY_H_
