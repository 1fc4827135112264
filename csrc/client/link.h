// Link: how a session's messages reach the controller and come back; and what a session is opened with.
//
// Ownership: the session owns its link. Threads: see each function. Locks: the link's own.
#ifndef PTPATHWAYS_CLIENT_LINK_H_
#define PTPATHWAYS_CLIENT_LINK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/transport/keys.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

using Payload = std::shared_ptr<const std::string>;

// How messages reach the controller and come back. Send never blocks and may be called from any thread. The sink is
// called on any thread, and not after Close has returned.
class Link {
 public:
  using Sink = std::function<void(std::string head, std::vector<Payload> payloads)>;
  virtual ~Link() = default;
  // The first message.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): others write into it.
  virtual Status Join(wire::Hello hello) { return Send(wire::Encode(hello), {}); }
  virtual Status Send(std::string head, std::vector<Payload> payloads) = 0;
  // The next connection needs these keys, or still those of this one.
  virtual void Rotate(const transport::CurveOptions& /*curve*/) {}
  // Says that this client is alive, where that is not plain.
  virtual void Beat() {}
  virtual void Close() = 0;
};
// Opens a link; `lost` is called when the controller's end closes.
using LinkFactory = std::function<Result<std::unique_ptr<Link>>(Link::Sink sink, std::function<void(Status)> lost)>;

// A link to a controller in another process, over ZeroMQ (transport/control_line.h).
Result<std::unique_ptr<Link>> OpenZmqLink(const std::string& endpoint, const transport::CurveOptions& curve,
                                          Link::Sink sink, std::function<void(Status)> lost);

struct SessionOptions {
  std::string name = "client";
  std::string build;       // package version
  std::string controller;  // for messages: where the link leads
  LinkFactory link;
  transport::ClusterKeys keys;  // for bulk data to and from hosts
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds transfer_timeout{60'000};  // of a transfer to a host that is silent
  double weight = 1;                                   // share of an island's time under the fair policy
  int32_t priority = 0;                                // class under the priority policy; higher goes first
  // Runs in flight before a run blocks, so that a tight loop cannot exhaust memory.
  uint32_t window_runs = 256;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_LINK_H_
