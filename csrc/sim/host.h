// Host: what a worker is to its controller, with simulated devices. It takes and gives the very same messages.
//
// Values are types and times: a put's bytes are dropped, and a fetch gives zeros of the right size.
//
// Ownership: owns its functions, plans and buffers. Threads: none inside; the cluster's one thread.
#ifndef PTPATHWAYS_SIM_HOST_H_
#define PTPATHWAYS_SIM_HOST_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/plan/places.h"
#include "csrc/plan/plan.h"
#include "csrc/sim/compiler.h"
#include "csrc/sim/fleet.h"
#include "csrc/sim/network.h"
#include "csrc/sim/timeline.h"
#include "csrc/sim/trace.h"
#include "csrc/store/memory_account.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::sim {

class Host;

// What all hosts of a simulated cluster share.
struct World {
  World(CompilerOptions compiler_options, NetworkOptions network_options)
      : fleet(&timeline, &trace), network(&timeline, network_options), compiler(std::move(compiler_options)) {}
  World(const World&) = delete;

  void AddHost(uint32_t host, uint32_t first_device, uint32_t devices);
  // Its devices and its transfers fail with `error`. Idempotent: every host is told of the same loss.
  void LoseHost(uint32_t host, const Status& error);

  Timeline timeline;
  Trace trace;
  Fleet fleet;
  Network network;
  Compiler compiler;
  int64_t compile_ns = 0;
  std::vector<Host*> news;               // hosts with something to report; whoever drives the world has them flush it
  std::vector<uint32_t> device_to_host;  // of hosts that have joined
  // Devices of functions, shared between the hosts of one slice.
  std::unordered_map<uint64_t, std::weak_ptr<const std::vector<uint32_t>>> device_lists;
};

struct HostSpec {
  std::string name;
  std::string island;
  std::string build;
  uint32_t devices = 1;
  int64_t memory_limit_bytes = 0;  // per device
};

using Payload = std::shared_ptr<const std::string>;

struct ProgramRunner;

class Host {
 public:
  // Gives a message to the controller.
  using Reply = std::function<void(std::string head, std::vector<Payload> payloads)>;

  Host(World* world, HostSpec spec, Reply reply);
  ~Host();

  // Asks to join; the rest follows from the answer.
  void Join();
  // A message of the controller. Never blocks; what it refuses is in last_refusal().
  void OnMessage(std::string_view frame, const std::vector<Payload>& payloads);
  // Sends what finished since the last call, in one message.
  void FlushDone();
  // The host is gone: it neither hears nor says anything from now on.
  void Die();

  bool joined() const { return joined_; }
  bool alive() const { return alive_; }
  uint32_t index() const { return index_; }
  uint32_t first_device() const { return first_device_; }
  const HostSpec& spec() const { return spec_; }
  size_t buffer_count() const { return buffers_.size(); }
  int64_t bytes_used() const { return account_->total_used(); }
  const Status& last_refusal() const { return last_refusal_; }

 private:
  friend class PlanBackend;

  struct Shard {
    uint32_t number = 0;  // in the logical buffer
    uint32_t device = 0;  // cluster-wide
    int64_t bytes = 0;
    std::shared_ptr<Value> value;
  };
  // This host's part of a logical buffer. Its bytes are accounted as long as somebody holds it.
  struct Buffer {
    Buffer(std::shared_ptr<store::MemoryAccount> held_in, uint32_t first, uint32_t owner)
        : account(std::move(held_in)), first_device(first), client(owner) {}
    ~Buffer();
    Buffer(const Buffer&) = delete;
    void Add(Shard shard);
    // Gives a shard that was added without bytes its bytes and value.
    void Fill(size_t position, int64_t bytes, std::shared_ptr<Value> value);
    const Shard* Find(uint32_t number) const;
    void SetSpilled(bool now);

    const std::shared_ptr<store::MemoryAccount> account;
    const uint32_t first_device;
    const uint32_t client;
    std::vector<Shard> shards;
    Status error;
    bool spilled = false;
  };
  using BufferPtr = std::shared_ptr<Buffer>;

  struct Function {
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
  class Part;  // of a run

  Status Handle(const wire::Head& head, const std::vector<Payload>& payloads);
  Status OnWelcome(const wire::Welcome& welcome);
  Status OnRegister(wire::Register request, const std::vector<Payload>& payloads);
  void OnCompiled(uint64_t id);
  Status OnRegisterPlan(wire::RegisterPlan description);
  // Answers the plans all of whose functions are compiled.
  void AnswerPlans();
  void OnPut(const wire::Put& put);
  void OnRun(const wire::Run& run);
  Status Execute(const wire::Run& run, const Function& function);
  void OnRunProgram(const wire::RunProgram& run);
  void OnRunInPlace(const wire::RunInPlace& message);
  // Why no run of it can be, or OK.
  Status StateOf(uint64_t program) const;
  void WalkProgram(Program& program, const wire::RunProgram& run, std::span<const uint64_t> results);
  void OnFetch(const wire::Fetch& fetch);
  void OnCopy(const wire::Copy& copy);
  void OnExpect(const wire::Expect& expect);
  std::shared_ptr<Value> CopyLocally(const std::shared_ptr<Value>& source, int64_t bytes);
  void OnSpill(const std::vector<uint64_t>& buffers, bool spill);
  void OnOwnerGone(uint32_t client);
  void OnQuery(const wire::Query& query);
  // What the trace says of a program's last runs, encoded (wire::Times).
  Result<std::string> TimesOf(uint64_t program) const;

  void Report(uint64_t run, const Status& status, int64_t busy_ns);
  BufferPtr MakeBuffer(uint64_t id) const;
  BufferPtr FailedBuffer(const Status& status) const;
  void KeepFailed(uint64_t id, const Status& status, bool tell_client);
  // With what is missing said, as a worker would.
  Result<BufferPtr> FindBuffer(uint64_t id) const;
  Result<const Shard*> FindShard(const Buffer& buffer, uint32_t number) const;
  Launch MakeLaunch(uint64_t run, uint64_t function_id, uint32_t occurrence, const Function& function) const;
  // Whether `bytes` fit on each of these devices.
  Status CheckMemory(const std::vector<uint32_t>& devices, int64_t bytes, const std::string& what) const;
  bool IsLocal(uint32_t device) const { return device >= first_device_ && device - first_device_ < spec_.devices; }
  Status Here(const Status& status) const {
    return status.ok() ? status : status.WithPrefix("host '" + spec_.name + "'");
  }
  template <typename Body>
  void Send(const Body& body, std::vector<Payload> payloads = {}) {
    if (alive_) reply_(wire::Encode(body), std::move(payloads));
  }

  World* const world_;
  const HostSpec spec_;
  const Reply reply_;
  bool joined_ = false;
  bool alive_ = true;
  uint32_t index_ = 0;
  uint32_t first_device_ = 0;
  const std::shared_ptr<store::MemoryAccount> account_;
  std::unordered_map<uint64_t, std::unique_ptr<Function>> functions_;
  std::unordered_map<uint64_t, std::unique_ptr<Program>> programs_;
  std::unordered_map<uint64_t, BufferPtr> buffers_;
  std::unique_ptr<ProgramRunner> runner_;
  wire::Done done_;
  Status last_refusal_;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_HOST_H_
