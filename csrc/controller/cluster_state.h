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
// Each input goes to the part that it is for, with an Outbox in which the part puts what comes of it. Here is what
// concerns several parts: who joins (admission.h, ExpectedHosts, Hosts, Clients, IslandGroups), and who is lost or
// silent (Members, HostWatch). What members say otherwise goes to ClientMessages and WorkerMessages, and by them to
// Registry, Runs, Forwarding, MemoryGate and ResourceManager.
#ifndef PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_
#define PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/client_messages.h"
#include "csrc/controller/clients.h"
#include "csrc/controller/cluster_options.h"
#include "csrc/controller/expected_hosts.h"
#include "csrc/controller/forwarding.h"
#include "csrc/controller/host_watch.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/island_groups.h"
#include "csrc/controller/members.h"
#include "csrc/controller/memory_gate.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/outbox.h"
#include "csrc/controller/registry.h"
#include "csrc/controller/resource_manager.h"
#include "csrc/controller/runs.h"
#include "csrc/controller/status_report.h"
#include "csrc/controller/worker_messages.h"
#include "csrc/scheduler/gang_scheduler.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/identity.h"

namespace pathways::controller {

class ClusterState {
 public:
  explicit ClusterState(ClusterOptions options)
      : options_(std::move(options)),
        members_(options_),
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
  std::vector<Connection> TakeGone() { return members_.TakeGone(); }
  // Whether somebody has joined, or asked to, by this connection.
  bool Knows(const Connection& connection) const;

 private:
  void OnHello(const Connection& from, std::string_view body, const std::string& where, Outbox& outbox);
  // A connection on which a host's plugin finds those of its island.
  void OnIslandMessage(const Connection& from, const wire::Head& head, Outbox& outbox);
  // Hosts whose island is no more are lost with it.
  void SendAnswers(const IslandGroups::Answers& answers, Outbox& outbox);

  void Disconnect(const Connection& from, const std::string& reason, Outbox& outbox);
  void Lose(const Members::Member& member, const std::string& reason, Outbox& outbox);
  void LoseHost(uint32_t host, const std::string& reason, Outbox& outbox);
  void LoseClient(uint32_t client, const std::string& reason, Outbox& outbox);
  // Clients are told of a silent host, and when it is heard of again; the log of every silent member.
  void TellOfSilence(const Members::Change& change, Outbox& outbox);

  // The scheduler's, of an island that may be new.
  uint32_t IslandNumber(const std::string& name);
  // TOPOLOGY to the clients, and to the hosts but the one that has just joined.
  void TellClientsOfHosts(Outbox& outbox) const;
  void TellAllOfNewHosts(const Connection& joined, Outbox& outbox);

  const ClusterOptions options_;
  Members members_;
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
  ClientMessages of_clients_{{clients_, scheduler_, registry_, memory_, resources_, forwarding_, runs_},
                             [this](uint64_t now_ms) { return StatusJson(now_ms); }};
  WorkerMessages of_workers_{{hosts_, clients_, registry_, memory_, forwarding_, runs_}, of_clients_};
  uint64_t next_session_ = 1;
  uint64_t now_ms_ = 0;  // of the latest message or tick
  std::string address_;  // of who says HELLO next; empty: not known, or this machine
  Serving serving_;
  LogLines log_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CLUSTER_STATE_H_
