#include "csrc/values/fetch_clock.h"

namespace pathways::values {
namespace {

thread_local bool fetches_are_waits = true;

}  // namespace

void FetchClock::AccountThisThread(bool account) { fetches_are_waits = account; }

bool FetchClock::AccountsThisThread() { return fetches_are_waits; }

void FetchClock::Begin() {
  std::lock_guard lock(mutex_);
  if (fetches_++ == 0) first_ = std::chrono::steady_clock::now();
}

void FetchClock::End(client::Waiting& waiting) {
  std::chrono::steady_clock::time_point begin;
  {
    std::lock_guard lock(mutex_);
    if (--fetches_ > 0) return;
    begin = first_;
  }
  waiting.Account(std::chrono::steady_clock::now() - begin);
}

}  // namespace pathways::values
