// Programs: the plans that are registered on this host, by the client's ids. Each is checked once, and answered when
// the functions in it are compiled.
//
// Ownership: owned by the engine; shares programs with their runs. Threads: the engine's. Locks: none.
#ifndef PTPATHWAYS_WORKER_PROGRAMS_H_
#define PTPATHWAYS_WORKER_PROGRAMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/plan/places.h"
#include "csrc/plan/plan.h"
#include "csrc/worker/completions.h"
#include "csrc/worker/functions.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/run_times.h"

namespace pathways::worker {

struct Program : StepNames {
  std::optional<plan::Plan> plan;
  plan::Places places;
  std::vector<std::shared_ptr<Function>> by_step;  // the step's function, or null
  // By output: whether some of it is received or copied, so that no computation here tells when it is there.
  std::vector<char> watch_output;
  size_t compiles_left = 0;
  bool spans_hosts = false;  // a function of it has shards on other hosts
  Status status;
  std::optional<RunTimes> times;  // of programs of several nodes

  const std::string& name() const override { return plan->description().name; }
  std::string Describe(size_t step) const override;
};

class Programs {
 public:
  Programs(HostContext& context, const Functions& functions) : context_(context), functions_(functions) {}

  // Answered with PLAN_READY, now or when all is compiled.
  Status Register(wire::RegisterPlan description);
  // A function of the program is compiled, or could not be.
  void Compiled(uint64_t program, const Status& status);
  void Unregister(std::span<const uint64_t> ids);
  void ForgetClient(uint32_t client);
  // One that can run.
  Result<std::shared_ptr<Program>> Ready(uint64_t id) const;
  // When what its last runs computed here began and ended, encoded (wire::Times).
  Result<std::string> TimesOf(uint64_t program) const;

 private:
  Status Make(wire::RegisterPlan description, Program& program) const;
  Status CheckAgainstFunctions(const Program& program) const;
  // The same of one step; what is wrong with it, or nothing.
  std::string CheckStep(const Program& program, const wire::PlanStep& step, const Function& function) const;
  void Answer(uint64_t id, Program& program);
  void Measure(Program& program, wire::PlanReady* answer) const;

  HostContext& context_;
  const Functions& functions_;
  std::unordered_map<uint64_t, std::shared_ptr<Program>> programs_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_PROGRAMS_H_
