// How a Socket is opened.
//
// Ownership: values. Threads: any.
#ifndef PTPATHWAYS_TRANSPORT_SOCKET_OPTIONS_H_
#define PTPATHWAYS_TRANSPORT_SOCKET_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "csrc/transport/callers.h"
#include "csrc/transport/curve.h"

namespace pathways::transport {

enum class SocketKind { kDealer, kRouter };

struct SocketOptions {
  SocketKind kind = SocketKind::kDealer;
  // Routing id by which a ROUTER at the other end knows this socket; empty: libzmq invents one per connection.
  std::string identity{};
  // Messages queued per peer; 0 is unlimited. With a limit, Send fails with RESOURCE_EXHAUSTED instead of blocking.
  int send_hwm = 0;
  int receive_hwm = 0;
  // How long unsent messages survive Close.
  std::chrono::milliseconds linger{0};
  // Who connects pings, and ends a connection on which nothing comes back for `heartbeat_timeout`; the other end does
  // so after twice that. 0: no pings.
  std::chrono::milliseconds heartbeat_interval{0};
  std::chrono::milliseconds heartbeat_timeout{0};
  // Whether the other end, too, ends a connection on which it hears nothing for that long.
  bool heartbeat_binds_peer = true;
  std::chrono::milliseconds handshake_timeout{10000};
  // How long one attempt to connect may take; 0: as long as the system lets it.
  std::chrono::milliseconds connect_timeout{0};
  std::chrono::milliseconds reconnect_interval{20};
  std::chrono::milliseconds reconnect_interval_max{1000};
  // A peer that sends a larger frame is disconnected. -1 is unlimited.
  int64_t max_message_bytes = -1;
  // A new connection takes over the routing id of an older one (a restarted peer need not wait for our heartbeat).
  bool router_handover = true;
  // Delivers PeerEvents to the reactor (of ipc and tcp peers; libzmq reports none for inproc).
  bool monitor = true;
  // Of a listener: of callers that say nothing, those that came first are hung up on beyond these.
  StrangerLimits stranger_limits{};
  CurveOptions curve{};
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_SOCKET_OPTIONS_H_
