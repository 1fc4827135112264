// Queries: what hosts and the controller are asked, and the input pipelines of hosts, which are driven by questions.
//
// Ownership: owned by the session; borrows the parts below it. Threads: any. Locks: the session's (core.h).
#ifndef PTPATHWAYS_CLIENT_QUERIES_H_
#define PTPATHWAYS_CLIENT_QUERIES_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/functions.h"
#include "csrc/client/pending.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/pipeline_bodies.h"

namespace pathways::client {

struct QueryAnswer {
  std::string format;
  std::vector<wire::Property> properties;
  std::string payload;
};
using Query = Question<QueryAnswer>;

class Queries {
 public:
  Queries(Core& core, Functions& functions) : core_(core), functions_(functions) {}

  // Asks the device's host about a function, or about the device (0), and waits.
  Result<QueryAnswer> Ask(wire::QueryKind kind, uint64_t function, uint32_t device, std::chrono::milliseconds timeout);
  // The same about a function, which is registered on the device's host first if it is not yet there.
  Result<QueryAnswer> Ask(wire::QueryKind kind, const std::shared_ptr<Function>& function, uint32_t device,
                          std::chrono::milliseconds timeout);
  // The controller's view of the cluster, as JSON.
  Result<std::string> ClusterStatus(std::chrono::milliseconds timeout);

  uint64_t MintPipeline() { return core_.MintIds(); }
  // Starts a process of pipeline `open.pipeline` on host `open.host`; the answer's payload is what it says of itself.
  Result<Query> OpenPipeline(wire::OpenPipeline open, std::string given);
  // Done when the bytes have been handed to the buffers under `feed.keys`, or failed.
  Result<Query> Feed(wire::Feed feed);
  void ClosePipeline(uint64_t pipeline, uint32_t host) noexcept;

  Status OnReply(const wire::Reply& reply, const Received& received);
  void Fail(const Loss& loss, Endings& ended) PW_REQUIRES(core_.mutex) { open_.Fail(loss, ended); }

 private:
  // Sends a question to a host without waiting for the answer.
  template <typename Body>
  Result<Query> AskHost(Body body, std::vector<Payload> payloads);
  // Asks `host`, or kAsksController, and waits. `whom`: for messages.
  Result<QueryAnswer> AskAndWait(wire::Query message, uint32_t host, const std::string& whom,
                                 std::chrono::milliseconds timeout);

  Core& core_;
  Functions& functions_;
  Questions<QueryAnswer> open_ PW_GUARDED_BY(core_.mutex);
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_QUERIES_H_
