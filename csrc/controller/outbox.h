// Outbox: one input of the controller as its parts see it: when it came, whose message it is, and where to put what
// comes of it, which is messages in their order, and lines for the log. Message: what a client says, on its way to the
// hosts that it is for.
//
// Ownership: made for one input by ClusterState, and lent to the parts; borrows what it fills. Threads: none inside;
// the owner serialises calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_OUTBOX_H_
#define PTPATHWAYS_CONTROLLER_OUTBOX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/wire/bodies.h"

namespace pathways::controller {

// A connection's name, chosen by whoever drives this: "line/N" of a member (lines.h), "local/N" of one of the same
// process, or the ZeroMQ routing id of a stranger.
using Connection = std::string;
// Bulk bytes that pass through unread (modules, compile options), shared between the hosts they go to.
using Payload = std::shared_ptr<const std::string>;

struct Outgoing {
  Connection to;
  std::string head;
  std::vector<Payload> payloads;
};
using Outputs = std::vector<Outgoing>;
// Lines for the log, each with the connection whose message caused it, if one did.
using LogLines = std::vector<std::pair<Connection, std::string>>;

// Frame and payloads may be moved from.
struct Message {
  const wire::Head& head;  // body borrowed from `frame`
  std::string& frame;
  std::vector<Payload>& payloads;
  uint64_t arrival = 0;  // its number among the messages of all clients
};

class Outbox {
 public:
  // `cause`: whose message it is; empty: nobody's.
  Outbox(uint64_t now_ms, Connection cause, Outputs& messages, LogLines& log)
      : now_ms_(now_ms), cause_(std::move(cause)), messages_(messages), log_(log) {}
  // The same input, as far as it concerns another connection.
  Outbox For(Connection cause) const { return Outbox(now_ms_, std::move(cause), messages_, log_); }

  uint64_t now_ms() const { return now_ms_; }

  template <typename Body>
  void Send(const Connection& to, const Body& body) {
    Pass(to, wire::Encode(body));
  }
  // A message that is encoded already.
  void Pass(const Connection& to, std::string head, std::vector<Payload> payloads = {}) {
    messages_.push_back({to, std::move(head), std::move(payloads)});
  }
  void Pass(Outgoing message) { messages_.push_back(std::move(message)); }
  void Note(std::string line) { log_.emplace_back(cause_, std::move(line)); }

 private:
  const uint64_t now_ms_;
  const Connection cause_;
  Outputs& messages_;
  LogLines& log_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_OUTBOX_H_
