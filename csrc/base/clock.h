// The clock for deadlines and for how long something has lasted; it never goes back. Threads: any.
#ifndef PTPATHWAYS_BASE_CLOCK_H_
#define PTPATHWAYS_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace pathways {

inline int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_CLOCK_H_
