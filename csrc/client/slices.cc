#include "csrc/client/slices.h"

#include <optional>
#include <utility>

namespace pathways::client {

Result<Slice> Slices::Request(wire::RequestSlice request, std::chrono::milliseconds timeout) {
  request.request = core_.MintIds();
  const Question<Slice> question;
  {
    std::lock_guard lock(core_.mutex);
    PW_RETURN_IF_ERROR(core_.CheckOpen());
    open_.Begin(request.request, question, kAsksController);
  }
  PW_RETURN_IF_ERROR(core_.Send(request));
  const std::optional<Status> status = question.done->WaitFor(timeout);
  if (!status) {
    std::lock_guard lock(core_.mutex);
    open_.GiveUp(request.request);
    return DeadlineExceeded("expected the controller at " + core_.options.controller +
                            " to answer a request for a slice within " + std::to_string(timeout.count()) +
                            " ms, got nothing");
  }
  PW_RETURN_IF_ERROR(*status);
  return *question.answer;
}

void Slices::Release(uint64_t slice) noexcept {
  if (!core_.closed) (void)core_.Send(wire::ReleaseSlice{{slice}});  // a lost controller has forgotten it anyway
}

Status Slices::OnGranted(const wire::SliceGranted& answer, const Received& received) {
  std::optional<Question<Slice>> question;
  {
    std::lock_guard lock(core_.mutex);
    PW_ASSIGN_OR_RETURN(question, open_.Take(answer.request, received.from));
  }
  if (!question) return OkStatus();
  *question->answer = {answer.slice, answer.devices};
  question->done->Set(answer.status);
  return OkStatus();
}

}  // namespace pathways::client
