// SocketMonitor: what libzmq reports of a socket's connections, and the Peers that are made of it.
//
// Ownership: owned by a Socket, which closes it before its libzmq socket; owns the monitor's own libzmq socket.
// Threads:   Open before the Socket is used by others; everything else: its receiving thread, and Close under the
//            Socket's lock once that thread has let go.
#ifndef PTPATHWAYS_TRANSPORT_SOCKET_MONITOR_H_
#define PTPATHWAYS_TRANSPORT_SOCKET_MONITOR_H_

#include "csrc/base/status.h"
#include "csrc/transport/peers.h"

namespace pathways::transport {

class SocketMonitor {
 public:
  explicit SocketMonitor(StrangerLimits limits) : peers_(limits) {}
  ~SocketMonitor() { Close(); }
  SocketMonitor(const SocketMonitor&) = delete;
  SocketMonitor& operator=(const SocketMonitor&) = delete;

  Status Open(void* socket);
  void Close();
  // Readable when there is something to Drain; -1 before Open.
  int fd() const { return fd_; }

  // Hands everything that was reported to the peers.
  void Drain();
  Peers& peers() { return peers_; }
  const Peers& peers() const { return peers_; }

 private:
  void* monitored_ = nullptr;
  void* socket_ = nullptr;
  int fd_ = -1;
  Peers peers_;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_SOCKET_MONITOR_H_
