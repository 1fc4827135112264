// Runs of a simulated host: single functions, and programs through plan::Walker, the code that real workers run, too.
// Private to this room.
//
// Ownership: a part is shared by the computations that it waits for. Threads: none inside; the cluster's one thread.
#ifndef PTPATHWAYS_SIM_HOST_RUNS_H_
#define PTPATHWAYS_SIM_HOST_RUNS_H_

#include <memory>
#include <span>
#include <vector>

#include "csrc/plan/walker.h"
#include "csrc/sim/host.h"

namespace pathways::sim {

// This host's share of one run: reported when all its computations, and the transfers that end in its results, ended.
class Host::Part : public RunPart, public std::enable_shared_from_this<Host::Part> {
 public:
  Part(Host* host, uint64_t run) : host_(host), run_(run), busy_(host->spec_.devices, 0) {}

  void Expect(size_t computations) { left_ += computations; }
  void ExpectValue(Value& value);
  void DeviceDone(uint32_t device, int64_t at, int64_t busy_ns, const Status& error) override;
  // Nothing more is expected.
  void Close(const Status& status);

 private:
  void Note(const Status& error) {
    if (error_.ok()) error_ = error;
  }
  void One();

  Host* const host_;
  const uint64_t run_;
  std::vector<int64_t> busy_;  // by local device
  size_t left_ = 1;            // the last is Close
  Status error_;
};

// What plan::Walker needs of a host.
class PlanBackend {
 public:
  using Value = std::shared_ptr<Host::Buffer>;

  explicit PlanBackend(Host* host) : host_(host) {}
  void Begin(const Host::Program& program, const wire::RunProgram& run, std::shared_ptr<Host::Part> part);
  // Fails the gangs whose part of this host was not launched, for want of an argument.
  void End(const Status& first_error);

  bool IsSomething(const Value& value) const { return value != nullptr; }
  Status ErrorOf(const Value& value);
  Value Failed(const Status& status);
  Result<Value> Argument(const plan::Plan& plan, const wire::RunProgram& run, size_t position, bool given_up);
  Value Empty(const wire::PlanSlot& slot);
  Status Execute(const plan::Plan& plan, size_t step, std::span<const Value> arguments,
                 std::span<const char> may_donate, std::span<Value> results);
  void Send(const wire::PlanStep& step, const wire::PlanSlot& slot, const Value& value, uint64_t key);
  Status Receive(const wire::PlanStep& step, const wire::PlanSlot& slot, Value& value, uint64_t first_key);
  Status Copy(const wire::PlanStep& step, const Value& from, Value& to);
  void Keep(size_t result, uint64_t buffer, const Value& value);

 private:
  Launch LaunchOf(size_t step, const Host::Function& function) const;

  Host* const host_;
  const Host::Program* program_ = nullptr;
  const wire::RunProgram* run_ = nullptr;
  std::shared_ptr<Host::Part> part_;
  std::vector<char> launched_;  // by step
  Status last_error_;
};

struct ProgramRunner {
  explicit ProgramRunner(Host* host) : backend(host) {}
  PlanBackend backend;
  plan::Walker<PlanBackend> walker;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_HOST_RUNS_H_
