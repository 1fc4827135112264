// Plan: one host's part of a program (paper 4.2, 4.5), checked once so that walking it needs no checks.
//
// Ownership: plain value, immutable after Make. Threads: any.
#ifndef PTPATHWAYS_PLAN_PLAN_H_
#define PTPATHWAYS_PLAN_PLAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::plan {

class Plan {
 public:
  // INVALID_ARGUMENT naming step and reason: a slot that is not there, read before it is written, or written twice; a
  // box outside its tensor; a channel or device out of range. `first_device`, `device_count`: this host's devices.
  static Result<Plan> Make(wire::RegisterPlan description, uint32_t first_device, uint32_t device_count);

  const wire::RegisterPlan& description() const { return description_; }
  const std::vector<wire::PlanStep>& steps() const { return description_.steps; }
  const std::vector<wire::PlanSlot>& slots() const { return description_.slots; }
  // Distinct functions that its steps name.
  const std::vector<uint64_t>& functions() const { return functions_; }
  // Whether no later execute step of this host uses what step `index` makes: when all such steps have finished, all
  // have.
  bool is_leaf(size_t index) const { return leaf_[index]; }
  // INVALID_ARGUMENT: the gangs over several hosts are not in the order of the whole program, the same on all hosts.
  // With it hosts enqueue the gangs they share in one order; a gang that comes first in it waits for none behind it.
  Status CheckOrder(const std::function<bool(const wire::PlanStep&)>& spans_hosts) const;
  // "node 'b (fig2.py:12)' of program 'f'"
  std::string Describe(const wire::PlanStep& step) const;

  // Per local device: bytes of results that stay, and the most that slots hold at once beyond the arguments.
  const std::vector<int64_t>& result_bytes() const { return result_bytes_; }
  const std::vector<int64_t>& peak_bytes() const { return peak_bytes_; }

 private:
  Status Check(uint32_t first_device, uint32_t device_count) const;
  Status CheckStep(const wire::PlanStep& step, std::vector<char>& written) const;
  void FindLeaves();
  void MeasureMemory(uint32_t first_device, uint32_t device_count);

  wire::RegisterPlan description_;
  std::vector<uint64_t> functions_;
  std::vector<char> leaf_;
  std::vector<int64_t> result_bytes_;
  std::vector<int64_t> peak_bytes_;
};

}  // namespace pathways::plan

#endif  // PTPATHWAYS_PLAN_PLAN_H_
