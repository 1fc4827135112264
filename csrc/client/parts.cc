#include "csrc/client/parts.h"

#include <algorithm>

namespace pathways::client {

// The analysis does not know that the core of each part is this one.
void Parts::End(const Loss& loss) PW_NO_THREAD_SAFETY {
  Endings ended;
  {
    std::lock_guard lock(core.mutex);
    runs.Fail(loss, ended);
    transfers.Fail(loss, ended);
    queries.Fail(loss, ended);
    files.Fail(loss, ended);
    functions.Fail(loss, ended);
    programs.Fail(loss, ended);
    slices.Fail(loss, ended);
  }
  core.changed.notify_all();
  for (const auto& [event, outcome] : ended) event->Set(outcome);
}

std::vector<PendingItem> Parts::Pending() const PW_NO_THREAD_SAFETY {
  std::vector<PendingItem> out;
  {
    std::lock_guard lock(core.mutex);
    runs.List(out);
    functions.List(out);
    programs.List(out);
    transfers.List(out);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.since_ms < b.since_ms; });
  return out;
}

}  // namespace pathways::client
