// ClusterState: every decision of the controller, as a pure state machine.
//
// Event in (a message of a connection, a connection lost, a tick of the clock), messages out, each with the connection
// it goes to. No socket, clock or thread inside: the embedded controller, the daemon and a simulated cluster drive the
// same code.
//
// Ownership: owned by controller::Controller. Threads: none inside; the owner serialises calls.
//
// What it decides: who may join; which host serves a virtual device; when a gang goes and in which order on each island
// (through scheduler::GangScheduler); that nothing of a client overtakes a run which waits for its function, its plans
// or its turn; who must hear that a host or client is gone.
//
// A client's messages are one stream, handled in order. The head of the stream may have to wait (Wait says what for);
// all behind it waits, too, and other clients go on.
//
// Each input goes to the part that it is for, with an Outbox in which the part puts what comes of it: Hosts and
// ExpectedHosts, Clients and their ClientStreams, Registry, MemoryGate, Runs, Forwarding, HostWatch, IslandGroups. Here
// are the members' connections (cluster_state.cc), and the tables of messages (cluster_clients.cc, cluster_workers.cc).
#ifndef PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_
#define PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/clients.h"
#include "csrc/controller/cluster_options.h"
#include "csrc/controller/expected_hosts.h"
#include "csrc/controller/forwarding.h"
#include "csrc/controller/host_watch.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/island_groups.h"
#include "csrc/controller/memory_gate.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/outbox.h"
#include "csrc/controller/registry.h"
#include "csrc/controller/resource_manager.h"
#include "csrc/controller/runs.h"
#include "csrc/controller/status_report.h"
#include "csrc/scheduler/gang_scheduler.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/identity.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::controller {

class ClusterState {
 public:
  explicit ClusterState(ClusterOptions options)
      : options_(std::move(options)),
        hosts_(options_.data_secret),
        expected_(options_.expected_hosts),
        scheduler_(options_.scheduling),
        groups_(options_.expected_hosts),
        watch_(hosts_, clients_, scheduler_, options_.overdue_ms) {}

  ClusterState(const ClusterState&) = delete;  // its parts borrow each other
  ClusterState& operator=(const ClusterState&) = delete;

  // A message of a connection. A malformed or forbidden one is answered with the reason and changes nothing.
  void OnMessage(const Connection& from, std::string head, std::vector<Payload> payloads, uint64_t now_ms,
                 Outputs& out);
  // From where the next HELLO comes, for the log.
  void ComesFrom(std::string_view address) { address_ = address; }
  // The transport saw the connection close, or the launcher saw its process end.
  void OnDisconnected(const Connection& from, const std::string& reason, Outputs& out);
  // Emits heartbeats and drops peers not heard of for the timeout.
  void OnTick(uint64_t now_ms, Outputs& out);

  // A process of the controller serves from now on, with a standby or without (0). Connections that are on no line
  // ended with the one before it.
  void OnServing(uint64_t pid, uint64_t standby, Outputs& out);
  // Hosts speak on connections of their own for their plugins.
  bool has_island_connections() const { return !groups_.connections().empty(); }
  void LoseStandby() { serving_.standby = 0; }

  // For the launcher: the process of a worker has ended.
  void OnHostExited(const std::string& name, const std::string& reason, Outputs& out);

  // A goodbye for every peer.
  Outputs Farewell(const std::string& reason) const;

  uint32_t live_host_count() const { return hosts_.live_count(); }
  std::vector<wire::HostDescription> HostDescriptions() const { return hosts_.Descriptions(); }
  // Expected hosts that have never called.
  std::vector<std::string> MissingHosts() const { return expected_.Missing(); }
  std::string StatusJson(uint64_t now_ms) const;
  // Refusals and losses since the last call, for the log.
  LogLines TakeLog() { return std::exchange(log_, {}); }
  // Members that are none any more, since the last call.
  std::vector<Connection> TakeGone() { return std::exchange(gone_, {}); }
  // Whether somebody has joined, or asked to, by this connection.
  bool Knows(const Connection& connection) const;

 private:
  struct Peer {
    wire::Role role;
    uint32_t index;  // of the client or host
    uint64_t last_heard_ms;
    bool silent = false;  // those concerned have been told
  };
  // Clients are told of a silent host, and when it is heard of again; the log of every silent member.
  void TellOfSilence(const Peer& peer, uint64_t silence_ms, Outbox& outbox);
  // `where`: " from " its address; empty: not known, or this machine.
  void OnHello(const Connection& from, std::string_view body, const std::string& where, Outbox& outbox);
  // A connection on which a host's plugin finds those of its island.
  void OnIslandMessage(const Connection& from, const wire::Head& head, Outbox& outbox);
  void Disconnect(const Connection& from, const std::string& reason, Outbox& outbox);
  // Hosts whose island is no more are lost with it.
  void SendAnswers(IslandGroups::Answers answers, Outbox& outbox);
  void OnClientMessage(uint32_t client, Message& message, Outbox& outbox);
  Result<Outcome> HandleClient(uint32_t client, Message& message, Outbox& outbox);
  Result<Outcome> On(Client& owner, const wire::RequestSlice& request, Message& message, Outbox& outbox);
  Result<Outcome> On(Client& owner, const wire::ReleaseSlice& request, Message& message, Outbox& outbox);
  Result<Outcome> On(Client& owner, const wire::Query& query, Message& message, Outbox& outbox);
  // By type of message:
  using Handler = Result<Outcome> (*)(ClusterState& self, Client& owner, Message& message, Outbox& outbox);
  template <typename Body>
  static Result<Outcome> Call(ClusterState& self, Client& owner, Message& message, Outbox& outbox);
  template <typename... Bodies>
  static constexpr auto TableOf();
  void ReleaseFetches(uint32_t host, Outbox& outbox);

  // Frees what messages behind one that waits for memory free, unless a message before them names it.
  void FreeBehind(Client& owner, Outbox& outbox);

  Status OnWorkerMessage(uint32_t host, Message& message, Outbox& outbox);
  // Handles what a client's stream holds back, up to the next message that must wait.
  void ReleaseHeld(uint32_t client, Outbox& outbox);
  // Lets every gang go whose turn has come, and every message for which there is memory now.
  void GrantTurns(Outbox& outbox);
  void LoseHost(uint32_t host, const std::string& reason, Outbox& outbox);
  void LoseClient(uint32_t client, const std::string& reason, Outbox& outbox);

  // The scheduler's, of an island that may be new.
  uint32_t IslandNumber(const std::string& name);
  // TOPOLOGY to the clients, and to the hosts but the one that has just joined.
  void TellClientsOfHosts(Outbox& outbox) const;
  void TellAllOfNewHosts(const Connection& joined, Outbox& outbox);

  const ClusterOptions options_;
  std::unordered_map<Connection, Peer> peers_;
  Hosts hosts_;
  ExpectedHosts expected_;
  Clients clients_;
  scheduler::GangScheduler scheduler_;
  Registry registry_{hosts_, clients_, scheduler_};
  IslandGroups groups_;
  HostWatch watch_;
  ResourceManager resources_;
  MemoryLedger memory_;
  MemoryGate gate_{memory_, hosts_};
  Forwarding forwarding_{hosts_, memory_, gate_, options_.sent_to};
  Runs runs_{hosts_, clients_, scheduler_, memory_, gate_, options_.scheduling.arbitrate};
  uint64_t next_session_ = 1;
  uint64_t arrivals_ = 0;  // messages of clients so far
  uint64_t now_ms_ = 0;    // of the latest message or tick
  uint64_t last_tick_ms_ = 0;
  size_t fetch_turn_ = 0;
  std::string address_;  // of who says HELLO next; empty: not known, or this machine
  Serving serving_;
  LogLines log_;
  std::vector<Connection> gone_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_
