// ReportPace: how many ends of runs are reported together. A pure state machine.
//
// To note an end costs a wake-up of the engine's thread, and to report it wakes up the controller and the client. That
// is longer than a small computation takes. While many short runs are under way, nobody misses an end that is reported
// with a few others: the device has work meanwhile, and a result is usable before its run has ended.
//
// Ownership: plain value. Threads: none inside; the engine's.
#ifndef PTPATHWAYS_WORKER_REPORT_PACE_H_
#define PTPATHWAYS_WORKER_REPORT_PACE_H_

#include <chrono>
#include <cstddef>

namespace pathways::worker {

class ReportPace {
 public:
  static constexpr size_t kTogether = 8;
  // Those behind the ones that are reported together keep the device busy until the controller has sent more.
  static constexpr size_t kManyUnderWay = 2 * kTogether;
  static constexpr std::chrono::microseconds kShort{500};
  // An end is reported so long after it, if no others come.
  static constexpr std::chrono::milliseconds kLatest{1};

  void Began() { ++under_way_; }
  // After so long on its device.
  void Ended(std::chrono::microseconds busy) {
    --under_way_;
    latest_ = busy;
  }
  size_t under_way() const { return under_way_; }
  // So many ends may come together. 1: each is reported at once.
  size_t together() const { return under_way_ >= kManyUnderWay && latest_ < kShort ? kTogether : 1; }

 private:
  size_t under_way_ = 0;
  std::chrono::microseconds latest_ = kShort;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_REPORT_PACE_H_
