#include "csrc/worker/known_values.h"

namespace pathways::worker {

Status FailureOf(const HostContext& context, const RootCauses& causes, store::Object& value) {
  PW_RETURN_IF_ERROR(value.error);
  const bool all = context.enqueue_ahead() == EnqueueAhead::kAfterArguments;
  for (size_t p = 0; p < value.shards.size(); ++p) {
    const std::shared_ptr<store::Origin>& origin = value.OriginOf(p);
    if (origin != nullptr && origin->ended && !origin->cause.ok()) return origin->cause;
    const pjrt::Buffer& buffer = value.At(p).buffer;
    if (!buffer.valid() || (!all && !buffer.arrives())) continue;
    const Result<pjrt::EventHandle> ready = buffer.ReadyEvent();
    if (!ready.ok()) return context.Here(ready.status());
    if (!ready->IsReady()) return context.Here(Internal("a value was to be read that had not arrived"));
    if (const Status status = ready->Await(); !status.ok()) {
      return causes.Find(status, {}, nullptr, [&](const Status& reported) { return context.Here(reported); });
    }
  }
  return OkStatus();
}

}  // namespace pathways::worker
