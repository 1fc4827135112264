// Registry: the functions and programs of clients: which hosts are told of each, and how far these are.
//
// Ownership: owned by ClusterState; borrows hosts and scheduler, changes the clients it is given. Threads: none inside;
// the owner serialises calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_REGISTRY_H_
#define PTPATHWAYS_CONTROLLER_REGISTRY_H_

#include <cstdint>
#include <string>

#include "csrc/base/status.h"
#include "csrc/controller/clients.h"
#include "csrc/controller/hosts.h"
#include "csrc/controller/outbox.h"
#include "csrc/scheduler/gang_scheduler.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::controller {

class Registry {
 public:
  Registry(Hosts& hosts, Clients& clients, scheduler::GangScheduler& scheduler)
      : hosts_(hosts), clients_(clients), scheduler_(scheduler) {}

  // --- what a client says
  Status Take(Client& owner, const wire::Register& request, Message& message, Outbox& outbox);
  Status Take(Client& owner, const wire::RegisterPlan& plan, Message& message, Outbox& outbox);
  Status Take(Client& owner, const wire::Unregister& request, Message& message, Outbox& outbox);
  // --- what a host answers: the client is told, and given back, as its stream may go on now; null: it has left
  Result<Client*> Registered(uint32_t host, const wire::Registered& answer, std::string frame, Outbox& outbox);
  Result<Client*> PlanReady(uint32_t host, const wire::PlanReady& answer, std::string frame, Outbox& outbox);

  // The host will answer nothing: the client is told so instead.
  void LoseHost(uint32_t host, Client& client, const Status& status, Outbox& outbox);
  // The client leaves.
  void Forget(const Client& client);

 private:
  // Whether the plan is one for its host, and the host has its functions.
  Status CheckPlan(const Client& owner, const wire::RegisterPlan& plan) const;

  Hosts& hosts_;
  Clients& clients_;
  scheduler::GangScheduler& scheduler_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_REGISTRY_H_
