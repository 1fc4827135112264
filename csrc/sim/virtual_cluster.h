// VirtualCluster: the controller's decisions, simulated hosts and scripted clients in virtual time, on one thread. For
// schedules: what happens when, and whether anything can go wrong, however long it would take.
//
// A connection keeps its messages in order and each takes `latency_ns` and up to `jitter_ns` more. With
// `in_order = false` runs of different clients race each other to every host, as if clients sent them there themselves:
// what happens without a scheduler (paper 4.4).
//
// Ownership: owns everything; clients borrow it. Threads: none inside; use from one thread.
#ifndef PTPATHWAYS_SIM_VIRTUAL_CLUSTER_H_
#define PTPATHWAYS_SIM_VIRTUAL_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/controller/cluster_state.h"
#include "csrc/sim/cluster.h"
#include "csrc/sim/host.h"

namespace pathways::sim {

struct VirtualSpec {
  ClusterSpec cluster;
  controller::ClusterOptions controller;
  int64_t latency_ns = 50'000;  // of every message between client, controller and host
  int64_t jitter_ns = 0;
  bool in_order = true;
  uint64_t seed = 1;
};

class VirtualCluster {
 public:
  // A scripted client: mints ids as a session does and calls back when a run ended. Nothing here waits.
  class Client {
   public:
    using Ended = std::function<void(uint64_t run, const Status& status)>;

    uint32_t index() const { return index_; }
    uint64_t Mint(uint64_t count = 1);
    // A function over `devices`; one of them alone when `one_device`. The module is HLO.
    uint64_t Register(const std::string& name, const std::vector<uint32_t>& devices, bool one_device,
                      std::shared_ptr<const std::string> module);
    // One logical buffer with a shard of `type` on each device.
    uint64_t Put(const TensorType& type, const std::vector<uint32_t>& devices);
    // Gives the first output's id; `output_count` follow each other.
    uint64_t Run(uint64_t function, const std::vector<uint32_t>& devices, const std::vector<uint64_t>& arguments,
                 uint32_t output_count, Ended ended);
    // Sends the plans (whose program and host are filled in) and gives the program.
    uint64_t RegisterProgram(std::vector<wire::RegisterPlan> plans);
    uint64_t RunProgram(uint64_t program, uint32_t channels, const std::vector<uint64_t>& arguments,
                        uint32_t output_count, Ended ended);
    void Free(uint64_t buffer, const std::vector<uint32_t>& devices);
    void Fetch(uint64_t buffer, uint32_t shard, uint32_t device, std::function<void(const wire::Fetched&)> answer);
    // Leaves without a word.
    void Vanish();

    size_t unfinished() const { return runs_.size(); }
    const Status& refusal() const { return refusal_; }
    const std::vector<Status>& failures() const { return failures_; }  // of compiles, plans and buffers

   private:
    friend class VirtualCluster;
    Client(VirtualCluster* cluster, std::string connection) : cluster_(cluster), connection_(std::move(connection)) {}
    template <typename Body>
    void Send(const Body& body, std::vector<Payload> payloads = {});
    void OnMessage(const std::string& frame);

    VirtualCluster* const cluster_;
    const std::string connection_;
    uint32_t index_ = 0;
    uint64_t next_ = 1;
    std::unordered_map<uint64_t, Ended> runs_;
    std::unordered_map<uint64_t, std::function<void(const wire::Fetched&)>> fetches_;
    Status refusal_;
    std::vector<Status> failures_;
  };

  // All hosts are members when it returns.
  explicit VirtualCluster(VirtualSpec spec);

  Client* AddClient(const std::string& name, double weight = 1, int32_t priority = 0);
  void LoseHost(uint32_t host, const std::string& reason);

  // Goes on until nothing is left to happen, or until `until`; false in the latter case.
  bool Run(int64_t until = kNever);
  // After Run: OK when nothing waits. Otherwise who waits for whom.
  Status CheckIdle() const;

  World& world() { return world_; }
  const controller::ClusterState& controller() const { return state_; }
  Host& host(uint32_t index) { return *hosts_[index]; }
  uint32_t device_count() const { return spec_.cluster.hosts * spec_.cluster.devices_per_host; }
  int64_t now() const { return world_.timeline.now(); }

 private:
  void ToController(const std::string& from, std::string head, std::vector<Payload> payloads);
  void Deliver(controller::Outputs& out);
  // When a message sent now arrives, after all sent before it in the same stream.
  int64_t Arrival(const std::string& stream);
  // The next thing that happens, with what follows from it at once. False when nothing is left.
  bool Step();
  void Tick();
  // Nothing happens, and clients wait: time passes for the controller alone. Whether it then did something.
  bool WaitForController(int64_t until);

  const VirtualSpec spec_;
  World world_;
  controller::ClusterState state_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unordered_map<std::string, uint32_t> host_of_;      // by connection
  std::unordered_map<std::string, Client*> client_of_;     // by connection
  std::unordered_map<std::string, int64_t> last_arrival_;  // by stream
  int64_t next_tick_ = 0;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_VIRTUAL_CLUSTER_H_
