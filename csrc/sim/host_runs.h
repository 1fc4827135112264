// HostRuns: runs of a simulated host, of single functions and of programs. The latter go through plan::Walker, the code
// that real workers run, too; what it needs of a host is PlanBackend. A RunShare waits for what a run started here, and
// tells the DoneReport.
//
// Ownership: HostRuns owns its backend and report; a share is owned by what it waits for. All borrow the host's site,
//            buffers and programs.
// Threads:   none inside; the cluster's one thread.
#ifndef PTPATHWAYS_SIM_HOST_RUNS_H_
#define PTPATHWAYS_SIM_HOST_RUNS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "csrc/plan/walker.h"
#include "csrc/sim/host_buffers.h"
#include "csrc/sim/host_programs.h"

namespace pathways::sim {

// What ended since the controller was told.
class DoneReport {
 public:
  explicit DoneReport(const HostSite& site) : site_(site) {}

  // The world hears of the first.
  void Add(uint64_t run, const Status& status, int64_t busy_ns);
  // Sends what was added since the last call, in one message.
  void Flush();
  void Clear() { done_.outcomes.clear(); }

 private:
  const HostSite& site_;
  wire::Done done_;
};

// This host's share of one run: reported when all its computations, and the transfers that end in its results, ended.
class RunShare : public RunPart, public std::enable_shared_from_this<RunShare> {
 public:
  RunShare(const HostSite& site, DoneReport& report, uint64_t run)
      : site_(site), report_(report), run_(run), busy_(site.spec.devices, 0) {}

  // Launches a computation of this share; gives what stands for its outputs on each device.
  std::vector<std::shared_ptr<Value>> Enqueue(const Launch& launch, const std::vector<uint32_t>& devices,
                                              std::vector<Fleet::Inputs> inputs);
  void ExpectValue(Value& value);
  void DeviceDone(uint32_t device, int64_t at, int64_t busy_ns, const Status& error) override;
  // Nothing more is expected.
  void Close(const Status& status) { EndOne(status); }

 private:
  void EndOne(const Status& error);

  const HostSite& site_;
  DoneReport& report_;
  const uint64_t run_;
  std::vector<int64_t> busy_;  // by local device
  size_t left_ = 1;            // the last is Close
  Status error_;
};

class PlanBackend {
 public:
  using Value = BufferPtr;

  PlanBackend(const HostSite& site, HostBuffers& buffers, const HostPrograms& programs)
      : site_(site), buffers_(buffers), programs_(programs) {}
  void Begin(const Program& program, const wire::RunProgram& run, std::shared_ptr<RunShare> share);
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
  Launch LaunchOf(size_t step, const Function& function) const;

  const HostSite& site_;
  HostBuffers& buffers_;
  const HostPrograms& programs_;
  const Program* program_ = nullptr;
  const wire::RunProgram* run_ = nullptr;
  std::shared_ptr<RunShare> share_;
  std::vector<char> launched_;  // by step
  Status last_error_;
};

class HostRuns {
 public:
  HostRuns(const HostSite& site, HostBuffers& buffers, HostPrograms& programs)
      : site_(site), buffers_(buffers), programs_(programs), report_(site), backend_(site, buffers, programs) {}

  // Messages of the controller:
  void On(const wire::Run& run);
  void On(const wire::RunProgram& run);
  void On(const wire::RunInPlace& message);

  // Forgets what the controller was not told of.
  void Clear() { report_.Clear(); }

 private:
  Status Execute(const wire::Run& run, const Function& function);
  void Walk(Program& program, const wire::RunProgram& run, std::span<const uint64_t> results);
  // It will never have results.
  template <typename Message>
  void Fail(const Message& run, const Status& status);

  const HostSite& site_;
  HostBuffers& buffers_;
  HostPrograms& programs_;
  DoneReport report_;
  PlanBackend backend_;
  plan::Walker<PlanBackend> walker_;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_HOST_RUNS_H_
