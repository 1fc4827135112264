// Times: when the computations of a program's last runs began and ended on the devices of one host. The payload of the
// answer to a QUERY of kind kTimes.
//
// Ownership: plain values owning their contents. Threads: plain values.
#ifndef PTPATHWAYS_WIRE_TIMES_BODIES_H_
#define PTPATHWAYS_WIRE_TIMES_BODIES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::wire {

// Of one program: the runs that a host keeps, and what one of them may have to be kept.
inline constexpr size_t kMaxTimedRuns = 4;
inline constexpr size_t kMaxTimedComputations = 1u << 16;

// A node on one device.
struct TimedComputation {
  uint32_t device = 0;  // cluster-wide
  uint32_t node = 0;    // index into Times::nodes
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  template <typename A>
  void Fields(A& a) {
    a(device)(node)(start_ns)(end_ns);
  }
};

struct TimedRun {
  uint64_t run = 0;
  uint32_t missing = 0;  // computations that have not ended, or never will
  std::vector<TimedComputation> computations;
  template <typename A>
  void Fields(A& a) {
    a(run)(missing)(computations);
  }
};

struct Times {
  // The host's clocks when it answered: what is to be added to its times, which are of a clock that never goes back and
  // that the processes of one machine share (CLOCK_MONOTONIC), to have real time.
  int64_t real_ns_ahead = 0;
  std::vector<std::string> nodes;
  std::vector<TimedRun> runs;  // the oldest first
  template <typename A>
  void Fields(A& a) {
    a(real_ns_ahead)(nodes)(runs);
  }
};

std::string EncodeTimes(const Times& times);
// DATA_LOSS: bytes that are too few or too many, more than the limits, a node that is not named, an end before its
// start.
Result<Times> DecodeTimes(std::string_view bytes);

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_TIMES_BODIES_H_
