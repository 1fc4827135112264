// InputPipelines: the input pipelines of clients on this host. Their processes make the bytes of buffers that clients
// have PUT without any.
//
// Ownership: owned by the engine; owns the pipelines. Threads: the engine's; pipelines answer on threads of their own.
// Locks: none.
#ifndef PTPATHWAYS_WORKER_INPUT_PIPELINES_H_
#define PTPATHWAYS_WORKER_INPUT_PIPELINES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "csrc/wire/pipeline_bodies.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/pipeline.h"

namespace pathways::worker {

struct InputPipelineOptions {
  std::string python;   // the interpreter
  std::string script;   // what it runs
  bool refuse = false;  // a cluster that anybody may join runs no code of its clients
};

class InputPipelines {
 public:
  InputPipelines(HostContext& context, Incoming& incoming, InputPipelineOptions options)
      : context_(context), incoming_(incoming), options_(std::move(options)) {}

  // `given`: what the processes are given, or nullptr when the message came without. Answered when they run.
  void Open(const wire::OpenPipeline& open, const transport::Frame* given);
  void Feed(const wire::Feed& feed);
  void Close(uint64_t pipeline) { pipelines_.erase(pipeline); }
  void CloseOf(uint32_t client);
  void CloseAll() { pipelines_.clear(); }

 private:
  // Any thread.
  void Answer(uint64_t request, const Status& status, std::string text) const;

  HostContext& context_;
  Incoming& incoming_;
  const InputPipelineOptions options_;
  std::unordered_map<uint64_t, std::unique_ptr<Pipeline>> pipelines_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_INPUT_PIPELINES_H_
