// HostPrograms: the functions and programs that are registered on a simulated host. Functions are "compiled" at once,
// and said to be after the time that it takes; a program is ready when all its functions are.
//
// Ownership: owns functions and programs; borrows the host's site. Threads: none inside; the cluster's one thread.
#ifndef PTPATHWAYS_SIM_HOST_PROGRAMS_H_
#define PTPATHWAYS_SIM_HOST_PROGRAMS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/plan/places.h"
#include "csrc/plan/plan.h"
#include "csrc/sim/host_site.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::sim {

struct Function {
  // Of its execution in a run, before which that executes it `occurrence` times.
  Launch MakeLaunch(uint64_t run, uint32_t occurrence) const;

  wire::Register request;
  std::shared_ptr<const std::string> what;  // "function 'f' (train.py:12)"
  Payload module;
  std::shared_ptr<const Compiled> compiled;
  Status status;
  bool ready = false;
  bool meets = false;
  int64_t cost_ns = 0;
  DeviceList devices;                   // of the whole gang
  std::vector<uint32_t> local_numbers;  // positions in `devices` that are this host's
  std::vector<uint32_t> local_devices;
  uint32_t trace_name = 0;
};

struct Program {
  std::unique_ptr<plan::Plan> plan;
  plan::Places places;
  Status status;
  bool ready = false;  // PLAN_READY was sent
  uint32_t trace_name = 0;
  std::vector<uint32_t> node_names;
  std::vector<uint32_t> occurrence;  // by step: how many steps before it execute the same function
  uint32_t computations = 0;         // of a run, on this host's devices
  std::deque<uint64_t> last_runs;    // the oldest first, at most wire::kMaxTimedRuns
};

class HostPrograms {
 public:
  explicit HostPrograms(const HostSite& site) : site_(site) {}

  // Messages of the controller:
  Status Register(wire::Register request, const std::vector<Payload>& payloads);
  Status On(wire::RegisterPlan description);
  void On(const wire::Unregister& request);
  // Says what is asked of a function, or of the times of a program's last runs.
  void Answer(const wire::Query& query, wire::Reply& reply, std::vector<Payload>& payloads) const;

  // nullptr when it is not registered.
  const Function* FindFunction(uint64_t id) const;
  // Of a program that is ready.
  const Function& FunctionOf(const wire::PlanStep& step) const { return *functions_.at(step.function); }
  // One that can be run; otherwise why no run of it can be.
  Result<Program*> FindProgram(uint64_t id) const;

  void DropClient(uint32_t client);
  void Clear();

 private:
  void OnCompiled(uint64_t id);
  // Answers the plans all of whose functions are compiled.
  void AnswerPlans();
  // What the trace says of a program's last runs, encoded (wire::Times).
  Result<std::string> TimesOf(uint64_t program) const;

  const HostSite& site_;
  std::unordered_map<uint64_t, std::unique_ptr<Function>> functions_;
  std::unordered_map<uint64_t, std::unique_ptr<Program>> programs_;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_HOST_PROGRAMS_H_
