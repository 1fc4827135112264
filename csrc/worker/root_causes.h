// RootCauses: which run failed first.
//
// A plugin hands an input's error on to everything that depends on it, inside a text of its own; a user wants to hear
// of the run that failed first, not of one that could not run for want of its result. Texts of runs that have nothing
// to do with each other may be equal, so only the runs that make a failed run's inputs are asked (store::Origin), and
// beside them those causes that came from elsewhere, which name themselves: lost hosts, failed transfers, aborted
// gangs.
//
// A pure state machine. Ownership: plain value. Threads: none inside; the engine's.
#ifndef PTPATHWAYS_WORKER_ROOT_CAUSES_H_
#define PTPATHWAYS_WORKER_ROOT_CAUSES_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/store/object_store.h"

namespace pathways::worker {

class RootCauses {
 public:
  using Inputs = std::vector<std::shared_ptr<store::Origin>>;

  // The run that makes `object` is one of those that make the inputs, unless it can no longer fail.
  static void Note(const store::Object& object, Inputs& inputs);
  // The same of all that stands for a shard of it, where each step has an origin of its own.
  static void NoteAll(const store::Object& object, Inputs& inputs);
  // True when an input may still turn out to have failed before the run that reads it: `again` is called when that is
  // known.
  static bool MustWait(const Inputs& inputs, std::function<void()> again);
  // The cause of the first one that failed, or OK.
  static Status FirstFailure(const Inputs& inputs);
  // The run has ended; `cause` is OK or what Find gave.
  static void End(store::Origin& origin, const Status& cause);

  // A cause that came from elsewhere: what the plugin will say contains `text`.
  void Remember(std::string text, Status cause);
  // Of a run for which the plugin reported `reported`. `own`: its origin, or null; `blame`: makes the cause of the
  // status if this run itself failed first.
  Status Find(const Status& reported, const Inputs& inputs, store::Origin* own,
              const std::function<Status(const Status&)>& blame) const;

 private:
  std::deque<std::pair<std::string, Status>> elsewhere_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ROOT_CAUSES_H_
