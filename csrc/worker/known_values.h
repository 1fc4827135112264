// KnownValues: what is known of a value before it is read, where the plugin hands no errors on (EnqueueAhead).
//
// There a computation whose argument failed runs on whatever lies in the memory, and says that it went well; a copy
// does the same. So each value is followed to where it comes from: the transfer that fills its buffer, whose event
// tells of its error whatever the plugin says (pjrt::TransferFailure), and the run or step that makes it
// (store::Origin), which has failed when what it read has.
//
// Ownership: plain functions. Threads: FailureOf: the engine's; WhenEnded and WhenMade: any.
#ifndef PTPATHWAYS_WORKER_KNOWN_VALUES_H_
#define PTPATHWAYS_WORKER_KNOWN_VALUES_H_

#include <memory>
#include <utility>

#include "csrc/worker/host_context.h"
#include "csrc/worker/root_causes.h"

namespace pathways::worker {

// Why a value that need not be waited for any more (Launcher::MustArrive) must not be read, or OK.
Status FailureOf(const HostContext& context, const RootCauses& causes, store::Object& value);

// Calls `then`, on the engine's thread, with what makes a value when that has ended; null: no run of this host does.
// `then` must be copyable, as for WhenMade.
template <typename Then>
void WhenEnded(const HostContext& context, std::shared_ptr<store::Origin> origin, Then then) {
  context.engine().Post([origin = std::move(origin), then = std::move(then)] {
    if (origin == nullptr || origin->ended) return then(origin.get());
    // It is alive when it calls; held by what it calls, it would hold itself.
    origin->dependents.push_back([then, run = origin.get()] { then(run); });
  });
}

// Calls `then` with OK, or with the root cause, when it is known how what makes a value has ended. At once, where the
// plugin hands errors on or no run of this host makes it; else on the engine's thread.
template <typename Then>
void WhenMade(const HostContext& context, const std::shared_ptr<store::Origin>& origin, Then then) {
  if (context.hands_errors_on() || origin == nullptr) return then(OkStatus());
  WhenEnded(context, origin, [then = std::move(then)](const store::Origin* run) { then(run->cause); });
}

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_KNOWN_VALUES_H_
