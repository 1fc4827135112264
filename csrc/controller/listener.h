// Listener: where members connect to a controller: its socket, the endpoints at which that listens, and who is refused
// there.
//
// Ownership: owns its socket, closed by its user. Threads: Open on any, before the others; those on the control thread
// only. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_LISTENER_H_
#define PTPATHWAYS_CONTROLLER_LISTENER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/log_limit.h"
#include "csrc/base/status.h"
#include "csrc/transport/socket.h"

namespace pathways::controller {

class Listener {
 public:
  // Listens at `bind`. `patience`: how long an endpoint may be somebody else's.
  Status Open(const std::vector<std::string>& bind, const transport::CurveOptions& curve,
              std::chrono::milliseconds patience);
  // Null before Open.
  const std::shared_ptr<transport::Socket>& socket() const { return socket_; }
  // With the ports that the system has chosen.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

  // Callers need these keys from ListenAgain on; connections that there are go on.
  void AskFor(const transport::CurveOptions& curve);
  // Where it is to listen again and could not yet, as far as that can be done now.
  void ListenAgain();
  // OK when a remote peer may use this name, and speak as what the head of its message says that it is.
  static Status CheckSender(std::string_view peer, const transport::Frame& head);
  // Hangs up on callers who have had time to say who they are and are not known.
  void DropStrangers(const std::function<bool(std::string_view)>& knows);
  // On stderr: a connection was refused.
  void LogRefusal(const transport::PeerEvent& event, uint64_t now_ms);

 private:
  std::shared_ptr<transport::Socket> socket_;
  std::vector<std::string> endpoints_;
  std::vector<std::string> unbound_;  // endpoints at which it is to listen again
  LogLimit refusals_{1};              // by address: who calls with a wrong token does so again and again
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_LISTENER_H_
