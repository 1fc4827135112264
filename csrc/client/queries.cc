#include "csrc/client/queries.h"

#include <optional>
#include <utility>

#include "csrc/client/waiting.h"

namespace pathways::client {

Result<QueryAnswer> Queries::AskAndWait(wire::Query message, uint32_t host, const std::string& whom,
                                        std::chrono::milliseconds timeout) {
  message.request = core_.MintIds();
  const Query query;
  {
    std::lock_guard lock(core_.mutex);
    PW_RETURN_IF_ERROR(core_.CheckOpen());
    open_.Begin(message.request, query, host);
  }
  PW_RETURN_IF_ERROR(core_.Send(message));
  const interrupt::Watch watch;
  const std::optional<Status> status =
      AwaitUnlessInterrupted(*query.done, watch, "an answer of " + whom, std::chrono::steady_clock::now() + timeout);
  if (!status) {
    {
      std::lock_guard lock(core_.mutex);
      open_.GiveUp(message.request);
    }
    if (watch.interrupted()) {
      watch.AboutToGiveUp();
      return Cancelled(interrupt::kMessage);
    }
    return DeadlineExceeded("expected " + whom + " to answer within " + std::to_string(timeout.count()) +
                            " ms, got nothing");
  }
  PW_RETURN_IF_ERROR(*status);
  return std::move(*query.answer);
}

Result<QueryAnswer> Queries::Ask(wire::QueryKind kind, uint64_t function, uint32_t device,
                                 std::chrono::milliseconds timeout) {
  PW_ASSIGN_OR_RETURN(const uint32_t host, core_.HostOf(device));
  wire::Query message;
  message.kind = kind;
  message.function = function;
  message.device = device;
  std::string whom;
  {
    std::lock_guard lock(core_.mutex);
    whom = "host '" + core_.hosts[host].name + "'";
  }
  return AskAndWait(message, host, whom, timeout);
}

Result<QueryAnswer> Queries::Ask(wire::QueryKind kind, const std::shared_ptr<Function>& function, uint32_t device,
                                 std::chrono::milliseconds timeout) {
  PW_RETURN_IF_ERROR(functions_.EnsureRegistered(*function, device).status());
  return Ask(kind, function->id(), device, timeout);
}

Result<std::string> Queries::ClusterStatus(std::chrono::milliseconds timeout) {
  wire::Query message;
  message.kind = wire::QueryKind::kStatus;
  PW_ASSIGN_OR_RETURN(QueryAnswer answer, AskAndWait(message, kAsksController, "the controller", timeout));
  return std::move(answer.payload);
}

template <typename Body>
Result<Query> Queries::AskHost(Body body, std::vector<Payload> payloads) {
  body.request = core_.MintIds();
  const Query query;
  {
    std::lock_guard lock(core_.mutex);
    PW_RETURN_IF_ERROR(core_.CheckHost(body.host));
    open_.Begin(body.request, query, body.host);
  }
  PW_RETURN_IF_ERROR(core_.Send(body, std::move(payloads)));
  return query;
}

Result<Query> Queries::OpenPipeline(wire::OpenPipeline open, std::string given) {
  if (core_.options.keys.insecure()) {  // hosts send pickles back, and run what they are sent
    return Status(Code::kPermissionDenied, "input pipelines need a cluster with a join token, got an insecure one");
  }
  return AskHost(std::move(open), {std::make_shared<const std::string>(std::move(given))});
}

Result<Query> Queries::Feed(wire::Feed feed) { return AskHost(std::move(feed), {}); }

void Queries::ClosePipeline(uint64_t pipeline, uint32_t host) noexcept {
  if (!core_.closed) (void)core_.Send(wire::ClosePipeline{pipeline, host});  // a controller that is gone needs none
}

Status Queries::OnReply(const wire::Reply& reply, const Received& received) {
  std::optional<Query> query;
  {
    std::lock_guard lock(core_.mutex);
    PW_ASSIGN_OR_RETURN(query, open_.Take(reply.request, received.from));
  }
  if (!query) return OkStatus();
  *query->answer = {reply.format, reply.properties, received.payloads.empty() ? "" : *received.payloads[0]};
  query->done->Set(reply.status);
  return OkStatus();
}

}  // namespace pathways::client
