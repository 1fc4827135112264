// Function: a registered function, and what it was compiled to on this host.
//
// Ownership: shared by the table of functions and the programs that call it. Threads: the engine's.
#ifndef PTPATHWAYS_WORKER_FUNCTION_H_
#define PTPATHWAYS_WORKER_FUNCTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/wire/bodies.h"
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/computation.h"

namespace pathways::worker {

struct Function {
  wire::Register request;
  std::shared_ptr<const Computation> computation;  // when compiled and OK; perhaps shared with functions alike
  Status status;
  bool compiled = false;
  int64_t temp_bytes = 0;
  std::vector<TensorType> outputs;  // per device
  // Its shards on this host: positions in request.devices; {0} for a function of one device.
  std::vector<uint32_t> local;
  // Where each of its shards is, when they are on several hosts.
  ClusterView::Places places;
  std::vector<uint64_t> programs;    // whose plans wait for this compile
  std::vector<wire::Query> waiting;  // asked before it was compiled
  int64_t since_ms = NowMs();

  // "function 'f' (train.py:12)"
  std::string Describe() const;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_FUNCTION_H_
