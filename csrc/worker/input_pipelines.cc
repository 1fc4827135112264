#include "csrc/worker/input_pipelines.h"

#include <algorithm>
#include <chrono>

namespace pathways::worker {
namespace {

constexpr uint64_t kLongestMs = uint64_t{30} * 24 * 3600 * 1000;

}  // namespace

void InputPipelines::Answer(uint64_t request, const Status& status, std::string text) const {
  wire::Reply reply;
  reply.request = request;
  reply.status = status.ok() ? status : context_.Here(status);
  context_.Report(context_.SendReply(reply, status.ok() ? std::move(text) : std::string()));
}

void InputPipelines::Open(const wire::OpenPipeline& open, const transport::Frame* given) {
  const auto answer = [this, request = open.request](const Status& status, std::string text, const PipelineValues&) {
    Answer(request, status, std::move(text));
  };
  // What comes is a pickle, which runs code of whoever made it.
  if (options_.refuse) {
    return answer(
        Status(Code::kPermissionDenied,
               "an input pipeline runs code of its client, and without a join token anybody may be one; start the "
               "cluster without --insecure"),
        {}, {});
  }
  if (given == nullptr || open.workers == 0 || open.workers > wire::kMaxPipelineWorkers ||
      pipelines_.contains(open.pipeline)) {
    return answer(InvalidArgument("expected a new input pipeline of 1 to " + std::to_string(wire::kMaxPipelineWorkers) +
                                  " processes and what they are given"),
                  {}, {});
  }
  PipelineOptions options;
  options.python = options_.python;
  options.script = options_.script;
  options.name = open.name;
  options.workers = open.workers;
  options.open_timeout = std::chrono::milliseconds(std::min(open.open_timeout_ms, kLongestMs));
  options.batch_timeout = std::chrono::milliseconds(std::min(open.batch_timeout_ms, kLongestMs));
  Result<std::unique_ptr<Pipeline>> pipeline = Pipeline::Start(std::move(options), std::string(given->bytes()), answer);
  if (pipeline.ok()) {
    pipelines_[open.pipeline] = *std::move(pipeline);
  } else {
    answer(pipeline.status(), {}, {});
  }
}

void InputPipelines::Feed(const wire::Feed& feed) {
  const size_t line = feed.what.find('\n');
  const std::string label = line == std::string::npos ? "" : feed.what.substr(0, line);
  const auto answered = [this, request = feed.request, keys = feed.keys, label](Status status, std::string text,
                                                                                PipelineValues values) {
    if (!status.ok() && !label.empty()) status = status.WithPrefix(label);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (status.ok()) {
        incoming_.Deliver(keys[i], values.values[i], values.owner);
      } else {
        incoming_.DeliverFailure(keys[i], context_.Here(status));
      }
    }
    Answer(request, status, std::move(text));
  };
  const auto it = pipelines_.find(feed.pipeline);
  if (it == pipelines_.end()) {
    return answered(NotFound("the input pipeline is closed, or could not be opened"), {}, {});
  }
  it->second->Ask(feed.worker, feed.what, feed.keys.size(), answered);
}

void InputPipelines::CloseOf(uint32_t client) {
  std::erase_if(pipelines_, [client](const auto& entry) { return wire::ClientOf(entry.first) == client; });
}

}  // namespace pathways::worker
