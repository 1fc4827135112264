// Membership: this client's place in the cluster: it joins, connects to hosts as they come, hears of losses, and
// leaves.
//
// Ownership: owned by the session; borrows the core, and owns the data plane.
// Threads:   Open and Leave are called by the session's user; messages come on any thread.
// Locks:     the session's (core.h).
#ifndef PTPATHWAYS_CLIENT_MEMBERSHIP_H_
#define PTPATHWAYS_CLIENT_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/link.h"
#include "csrc/client/pending.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/transport/keys.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

class Membership {
 public:
  // Ends everything under way that a loss covers.
  using End = std::function<void(const Loss& loss)>;

  Membership(Core& core, End end) : core_(core), end_(std::move(end)) {}

  // Joins the cluster and starts the data plane. UNAVAILABLE when the controller has not answered in time.
  // `still_wanted` is asked every now and then meanwhile; an error gives up.
  Status Open(Link::Sink controller, dataplane::DataSink* hosts, const std::function<Status()>& still_wanted);
  // Says goodbye and stops threads. Not from their callbacks.
  void Leave(const std::string& reason);
  // A message of the controller was wrong. While this client joins, that ends the attempt; later it is logged.
  void Refused(const Status& status);

  void OnWelcome(wire::Welcome welcome);
  void OnTopology(wire::Topology topology);
  void OnHostLost(const wire::HostLost& lost);
  Status OnRotate(const wire::Rotate& rotate);
  void OnReject(const wire::Reject& reject);
  void OnGoodbye(const wire::Goodbye& goodbye);

 private:
  Status AwaitWelcome(const std::function<Status()>& still_wanted);
  Status StartData(const std::string& machine, dataplane::DataSink* hosts);
  void ConnectToHosts();
  void OnControllerLost(const Status& reason);

  Core& core_;
  const End end_;
  std::unique_ptr<dataplane::DataPlane> data_;
  const std::shared_ptr<Event> welcomed_ = Event::Make();
  // Constant once welcomed:
  dataplane::Membership membership_;
  uint32_t heartbeat_interval_ms_ = 500;
  std::optional<transport::ClusterKeys> rotated_keys_ PW_GUARDED_BY(core_.mutex);  // in place of those of the options
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_MEMBERSHIP_H_
