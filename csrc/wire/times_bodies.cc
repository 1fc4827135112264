#include "csrc/wire/times_bodies.h"

#include "csrc/wire/archive.h"

namespace pathways::wire {
namespace {

std::string Mistake(const Times& times) {
  if (times.runs.size() > kMaxTimedRuns) return std::to_string(times.runs.size()) + " runs";
  if (times.nodes.size() > kMaxTimedComputations) return std::to_string(times.nodes.size()) + " nodes";
  for (const TimedRun& run : times.runs) {
    if (run.computations.size() > kMaxTimedComputations) {
      return "a run of " + std::to_string(run.computations.size()) + " computations";
    }
    for (const TimedComputation& computation : run.computations) {
      if (computation.node >= times.nodes.size()) {
        return "node " + std::to_string(computation.node) + " of " + std::to_string(times.nodes.size());
      }
      if (computation.end_ns < computation.start_ns) return "a computation that ends before it starts";
    }
  }
  return {};
}

}  // namespace

std::string EncodeTimes(const Times& times) {
  WriteArchive archive;
  archive(times);
  return std::move(archive).Take();
}

Result<Times> DecodeTimes(std::string_view bytes) {
  Times times;
  ReadArchive archive(bytes);
  archive(times);
  const std::string mistake = archive.complete() ? Mistake(times) : "too few bytes, or too many";
  if (mistake.empty()) return times;
  return DataLoss("malformed times of " + std::to_string(bytes.size()) + " bytes: " + mistake);
}

}  // namespace pathways::wire
