// Bodies of the messages of input pipelines: a user's Python code that makes batches on the CPUs of the workers' hosts,
// in processes of its own. What client and pipeline say to each other passes through unread.
//
// Ownership: plain values owning their contents. Threads: plain values.
#ifndef PTPATHWAYS_WIRE_PIPELINE_BODIES_H_
#define PTPATHWAYS_WIRE_PIPELINE_BODIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/wire/archive.h"
#include "csrc/wire/message.h"

namespace pathways::wire {

// Starts an input pipeline on a host. Payload 0: what its process is given first. Answered with REPLY, whose payload is
// what the process says of itself.
struct OpenPipeline {
  static constexpr Type kType = Type::kOpenPipeline;
  uint64_t pipeline = 0;
  uint64_t request = 0;
  uint32_t host = 0;
  uint32_t workers = 1;          // processes, which take turns
  uint64_t open_timeout_ms = 0;  // for the process to be ready
  uint64_t batch_timeout_ms = 0;
  std::string name;  // for errors
  template <typename A>
  void Fields(A& a) {
    a(pipeline)(request)(host)(workers)(open_timeout_ms)(batch_timeout_ms)(name);
  }
};

// Asks a host's pipeline for a part of a batch: `what` tells its process, which answers with the bytes of the buffers
// that were PUT under `keys`. Its first line begins the text of errors. Answered with REPLY when they have been handed
// over, or will never be.
struct Feed {
  static constexpr Type kType = Type::kFeed;
  uint64_t request = 0;
  uint64_t pipeline = 0;
  uint32_t host = 0;
  uint32_t worker = 0;
  std::vector<uint64_t> keys;
  std::string what;
  template <typename A>
  void Fields(A& a) {
    a(request)(pipeline)(host)(worker)(keys)(what);
  }
};

struct ClosePipeline {
  static constexpr Type kType = Type::kClosePipeline;
  uint64_t pipeline = 0;
  uint32_t host = 0;
  template <typename A>
  void Fields(A& a) {
    a(pipeline)(host);
  }
};
// Processes of a pipeline on a host.
inline constexpr uint32_t kMaxPipelineWorkers = 64;

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_PIPELINE_BODIES_H_
