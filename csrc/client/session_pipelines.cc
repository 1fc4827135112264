// Session: input pipelines.
#include "csrc/client/session.h"
#include "csrc/client/session_impl.h"

namespace pathways::client {

template <typename Body>
Result<Session::Question> Session::Impl::Inquire(Body body, std::vector<Payload> payloads) {
  body.request = MintIds();
  Question question{Event::Make(), std::make_shared<QueryAnswer>()};
  {
    std::lock_guard lock(mutex);
    if (closed) return FailedPrecondition(LeftText());
    if (!controller_lost.ok()) return controller_lost;
    if (body.host >= hosts.size()) return InvalidArgument("there is no host " + std::to_string(body.host));
    if (!hosts[body.host].alive) return Unavailable(lost_reasons[body.host]);
    queries[body.request] = {question.done, question.answer, body.host};
  }
  PW_RETURN_IF_ERROR(Send(body, std::move(payloads)));
  return question;
}

uint64_t Session::MintPipeline() { return impl_->MintIds(); }

Result<Session::Question> Session::OpenPipeline(wire::OpenPipeline open, std::string given) {
  if (impl_->options.keys.insecure()) {  // hosts send pickles back, and run what they are sent
    return Status(Code::kPermissionDenied, "input pipelines need a cluster with a join token, got an insecure one");
  }
  return impl_->Inquire(std::move(open), {std::make_shared<const std::string>(std::move(given))});
}

Result<Session::Question> Session::Feed(wire::Feed feed) { return impl_->Inquire(std::move(feed), {}); }

void Session::ClosePipeline(uint64_t pipeline, uint32_t host) noexcept {
  if (!impl_->closed) (void)impl_->Send(wire::ClosePipeline{pipeline, host});  // a controller that is gone needs none
}

}  // namespace pathways::client
