// FetchClock: for how long a client waits for values that it fetches.
//
// Callers of the C API wait for fetches in their own code, where nobody else could measure it. So the time during which
// at least one fetch is under way counts as the client waiting.
//
// Ownership: owned by its ClientState. Threads: every method may be called from any thread.
// Locks:     mutex_ is a leaf: the session is called without it.
#ifndef PTPATHWAYS_VALUES_FETCH_CLOCK_H_
#define PTPATHWAYS_VALUES_FETCH_CLOCK_H_

#include <chrono>
#include <mutex>

#include "csrc/base/thread_annotations.h"
#include "csrc/client/session.h"

namespace pathways::values {

class FetchClock {
 public:
  void Begin();
  // The last one under way accounts the time in `waiting`.
  void End(client::Waiting& waiting);

  // Whether fetches that the calling thread asks for from now on are waits of the client. A thread of our own that
  // fetches beside the program says no.
  static void AccountThisThread(bool account);
  static bool AccountsThisThread();

 private:
  std::mutex mutex_;
  int fetches_ PW_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point first_ PW_GUARDED_BY(mutex_);  // of those under way
};

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_FETCH_CLOCK_H_
