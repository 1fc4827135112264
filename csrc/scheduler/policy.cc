#include "csrc/scheduler/policy.h"

namespace pathways::scheduler {

std::string_view PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kFifo:
      return "fifo";
    case Policy::kFair:
      return "fair";
    case Policy::kPriority:
      return "priority";
  }
  return "unknown";
}

Result<Policy> ParsePolicy(std::string_view name) {
  for (const Policy policy : {Policy::kFifo, Policy::kFair, Policy::kPriority}) {
    if (name == PolicyName(policy)) return policy;
  }
  return InvalidArgument("expected the scheduling policy 'fifo', 'fair' or 'priority', got '" + std::string(name) +
                         "'");
}

}  // namespace pathways::scheduler
