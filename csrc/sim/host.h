// Host: what a worker is to its controller, with simulated devices. It takes and gives the very same messages.
//
// Values are types and times: a put's bytes are dropped, and a fetch gives zeros of the right size.
//
// It joins, and hands each message to the part whose `On` takes it: buffers, programs with their functions, or runs,
// which use both. No part knows the host.
//
// Ownership: owns its parts; borrows the world. Threads: none inside; the cluster's one thread.
#ifndef PTPATHWAYS_SIM_HOST_H_
#define PTPATHWAYS_SIM_HOST_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/sim/host_buffers.h"
#include "csrc/sim/host_programs.h"
#include "csrc/sim/host_runs.h"
#include "csrc/sim/host_site.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::sim {

class Host {
 public:
  using Reply = HostSite::Reply;

  Host(World* world, HostSpec spec, Reply reply);

  // Asks to join; the rest follows from the answer.
  void Join();
  // A message of the controller. Never blocks; what it refuses is in last_refusal().
  void OnMessage(std::string_view frame, const std::vector<Payload>& payloads);
  // The host is gone: it neither hears nor says anything from now on.
  void Die();

  bool joined() const { return site_.joined; }
  bool alive() const { return site_.alive; }
  size_t buffer_count() const { return buffers_.size(); }
  int64_t bytes_used() const { return site_.account->total_used(); }
  const Status& last_refusal() const { return last_refusal_; }

 private:
  Status Handle(const wire::Head& head, const std::vector<Payload>& payloads);
  // Whether the message is one of these, which then was given to the part; `status` is what became of it.
  template <typename... Bodies, typename Part>
  static bool Offer(const wire::Head& head, Part& part, Status& status);
  template <typename Body, typename Part>
  static Status Give(const wire::Head& head, Part& part);
  Status On(const wire::Welcome& welcome);
  Status On(const wire::Reject& reject);
  void On(const wire::HostLost& lost);
  void On(const wire::OwnerGone& gone);
  void On(const wire::Query& query);

  HostSite site_;
  HostBuffers buffers_;
  HostPrograms programs_;
  HostRuns runs_;
  Status last_refusal_;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_HOST_H_
