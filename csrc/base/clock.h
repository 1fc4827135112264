// The clock for deadlines and for how long something has lasted; neither reading goes back. Threads: any.
#ifndef PTPATHWAYS_BASE_CLOCK_H_
#define PTPATHWAYS_BASE_CLOCK_H_

#include <time.h>

#include <chrono>
#include <cstdint>

namespace pathways {

inline int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Up to a few milliseconds (a tick of the kernel) behind NowMs, and several times cheaper: for the beginnings of spans
// that are noted for every message and measured in seconds.
inline int64_t NowMsCoarse() {
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_CLOCK_H_
