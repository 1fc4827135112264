// Engine: input pipelines. Their processes make the bytes of buffers that clients have PUT without any.
#include <algorithm>

#include "csrc/wire/pipeline_bodies.h"
#include "csrc/worker/engine.h"

namespace pathways::worker {
namespace {

constexpr uint64_t kLongestMs = uint64_t{30} * 24 * 3600 * 1000;

}  // namespace

void Engine::SendReply(uint64_t request, const Status& status, std::string payload) {
  wire::Reply reply;
  reply.request = request;
  reply.status = status.ok() ? status : context_.Here(status);
  context_.Report(context_.SendReply(reply, std::move(payload)));
}

Status Engine::OnOpenPipeline(const wire::Head& head, transport::Frames& frames) {
  PW_ASSIGN_OR_RETURN(const wire::OpenPipeline open, wire::Decode<wire::OpenPipeline>(head.body));
  const auto answer = [this, request = open.request](const Status& status, std::string text, const PipelineValues&) {
    SendReply(request, status, status.ok() ? std::move(text) : std::string());
  };
  // What comes is a pickle, which runs code of whoever made it.
  if (options_.keys.insecure()) {
    answer(Status(Code::kPermissionDenied,
                  "an input pipeline runs code of its client, and without a join token anybody may be one; start the "
                  "cluster without --insecure"),
           {}, {});
    return OkStatus();
  }
  if (frames.size() != 2 || open.workers == 0 || open.workers > wire::kMaxPipelineWorkers ||
      pipelines_.contains(open.pipeline)) {
    answer(InvalidArgument("expected a new input pipeline of 1 to " + std::to_string(wire::kMaxPipelineWorkers) +
                           " processes and what they are given"),
           {}, {});
    return OkStatus();
  }
  PipelineOptions options;
  options.python = options_.python;
  options.script = options_.pipeline_script;
  options.name = open.name;
  options.workers = open.workers;
  options.open_timeout = std::chrono::milliseconds(std::min(open.open_timeout_ms, kLongestMs));
  options.batch_timeout = std::chrono::milliseconds(std::min(open.batch_timeout_ms, kLongestMs));
  Result<std::unique_ptr<Pipeline>> pipeline =
      Pipeline::Start(std::move(options), std::string(frames[1].bytes()), answer);
  if (pipeline.ok()) {
    pipelines_[open.pipeline] = *std::move(pipeline);
  } else {
    answer(pipeline.status(), {}, {});
  }
  return OkStatus();
}

void Engine::OnFeed(wire::Feed feed) {
  const auto answered = [this, request = feed.request, keys = feed.keys](const Status& status, std::string text,
                                                                         PipelineValues values) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (status.ok()) {
        incoming_->Deliver(keys[i], values.values[i], values.owner);
      } else {
        incoming_->DeliverFailure(keys[i], context_.Here(status));
      }
    }
    SendReply(request, status, status.ok() ? std::move(text) : std::string());
  };
  const auto it = pipelines_.find(feed.pipeline);
  if (it == pipelines_.end()) {
    answered(NotFound("the input pipeline is closed, or could not be opened"), {}, {});
    return;
  }
  it->second->Ask(feed.worker, std::move(feed.what), feed.keys.size(), answered);
}

}  // namespace pathways::worker
