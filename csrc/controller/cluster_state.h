// ClusterState: every decision of the controller, as a pure state machine.
//
// Event in (a message of a connection, a connection lost, a tick of the clock), messages out, each with the connection
// it goes to. No socket, clock or thread inside: the embedded controller, the daemon and a simulated cluster drive the
// same code.
//
// Ownership: owned by controller::Controller. Threads: none inside; the owner serialises calls.
//
// What it decides: who may join; which host serves a virtual device; the order of gangs on each island; that nothing
// of a client overtakes a run which waits for its function to be compiled; who must hear that a host or client is gone.
#ifndef PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_
#define PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/resource_manager.h"
#include "csrc/scheduler/island_scheduler.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {

// A connection's name, chosen by the transport: a ZeroMQ routing id, or "local/N" for a client of the same process.
using Connection = std::string;
// Bulk bytes that pass through unread (modules, compile options), shared between the hosts they go to.
using Payload = std::shared_ptr<const std::string>;

struct Outgoing {
  Connection to;
  std::string head;
  std::vector<Payload> payloads;
};
using Outputs = std::vector<Outgoing>;

struct ClusterOptions {
  std::string cluster;  // the cluster's name, part of every shared-memory segment's name
  std::string build;    // package version every peer must have
  uint32_t heartbeat_interval_ms = 500;
  uint32_t heartbeat_timeout_ms = 4000;
  // Hosts that are on their way, by name: they become hosts 0, 1, ... in this order, whoever calls first. Others join
  // in the order they come.
  std::vector<std::string> expected_hosts;
};

class ClusterState {
 public:
  explicit ClusterState(ClusterOptions options) : options_(std::move(options)) {}

  // A message of a connection. A malformed or forbidden one is answered with the reason and changes nothing.
  void OnMessage(const Connection& from, std::string head, std::vector<Payload> payloads, uint64_t now_ms,
                 Outputs& out);
  // The transport saw the connection close, or the launcher saw its process end.
  void OnDisconnected(const Connection& from, const std::string& reason, Outputs& out);
  // Emits heartbeats and drops peers not heard of for the timeout.
  void OnTick(uint64_t now_ms, Outputs& out);

  // For the launcher: the process of a worker has ended.
  void OnHostExited(const std::string& name, const std::string& reason, Outputs& out);

  // A goodbye for every peer.
  Outputs Farewell(const std::string& reason) const;

  uint32_t live_host_count() const;
  std::vector<wire::HostDescription> HostDescriptions() const;
  std::string StatusJson(uint64_t now_ms) const;
  // Refusals and losses since the last call, for the log.
  std::vector<std::string> TakeLog();

 private:
  enum class Compile : uint8_t { kPending, kReady, kFailed };

  struct Host {
    wire::HostDescription description;
    Connection connection;
    wire::Heartbeat load;
    std::string lost_reason;
  };
  struct FunctionState {
    std::map<uint32_t, Compile> hosts;
    std::string name;
  };
  struct Held {
    wire::Head head;  // body borrowed from `frame`
    std::string frame;
    std::vector<Payload> payloads;
  };
  struct Client {
    Connection connection;
    std::string name;
    std::unordered_map<uint64_t, FunctionState> functions;
    // What waits, in order, for the run at its front to become dispatchable.
    std::deque<std::unique_ptr<Held>> held;
  };
  struct Peer {
    wire::Role role;
    uint32_t index;  // of the client or host
    uint64_t last_heard_ms;
  };
  // Whether a message was passed on or must wait at the head of its client's queue.
  enum class Outcome { kHandled, kMustWait };

  // Whether a host must wait for one that is expected before it.
  bool MustWaitItsTurn(const std::string& name) const;
  void AdmitWaiting(uint64_t now_ms, Outputs& out);
  void OnHello(const Connection& from, std::string_view body, uint64_t now_ms, Outputs& out);
  void OnClientMessage(uint32_t client, const wire::Head& head, std::string&& frame, std::vector<Payload>&& payloads,
                       Outputs& out);
  Result<Outcome> HandleClient(uint32_t client, const wire::Head& head, std::string& frame,
                               std::vector<Payload>& payloads, Outputs& out);
  Result<Outcome> HandleRun(uint32_t client, const wire::Head& head, std::string& frame, std::vector<Payload>& payloads,
                            Outputs& out);
  Status HandleRegister(uint32_t client, const wire::Head& head, std::string& frame, std::vector<Payload>& payloads,
                        Outputs& out);
  Status HandleCopy(uint32_t client, const wire::Head& head, std::string& frame, Outputs& out);
  Status HandleRequestSlice(uint32_t client, const wire::Head& head, Outputs& out);
  Status HandleReleaseSlice(uint32_t client, const wire::Head& head);
  Status OnWorkerMessage(uint32_t host, const wire::Head& head, std::string& frame, std::vector<Payload>& payloads,
                         Outputs& out);
  void ReleaseHeld(uint32_t client, Outputs& out);
  void LoseHost(uint32_t host, const std::string& reason, Outputs& out);
  void LoseClient(uint32_t client, Outputs& out);

  Result<Host*> HostOfDevice(uint32_t device);
  scheduler::IslandScheduler& Island(const Host& host) { return islands_[host.description.island]; }
  Status CheckOwner(uint32_t client, uint64_t id, const char* what) const;
  // The run, its outputs and its arguments are the client's own, and not too many.
  Status CheckRun(uint32_t client, const wire::Run& run) const;
  template <typename Body>
  void Send(const Connection& to, const Body& body, Outputs& out) {
    out.push_back({to, wire::Encode(body), {}});
  }
  void ToClient(uint64_t id, std::string frame, std::vector<Payload> payloads, Outputs& out);
  void Note(std::string line) { log_.push_back(std::move(line)); }

  const ClusterOptions options_;
  std::unordered_map<Connection, Peer> peers_;
  std::vector<Host> hosts_;               // by host index; lost hosts stay, marked
  std::vector<uint32_t> device_to_host_;  // by device index
  std::map<uint32_t, Client> clients_;    // by client index
  std::map<std::string, scheduler::IslandScheduler> islands_;
  ResourceManager resources_;
  size_t expected_joined_ = 0;                                               // of options_.expected_hosts
  std::map<std::string, std::pair<Connection, std::string>> waiting_hosts_;  // name -> who called, and its HELLO
  uint32_t next_client_ = 1;
  uint64_t last_tick_ms_ = 0;
  std::vector<std::string> log_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_
