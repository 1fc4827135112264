// Trace: what every simulated device did when, as JSON for Chrome's and Perfetto's viewers and as a picture (paper,
// Fig. 9).
//
// Ownership: owns its intervals, at most `limit`; later ones are counted and dropped. Threads: none inside.
#ifndef PTPATHWAYS_SIM_TRACE_H_
#define PTPATHWAYS_SIM_TRACE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pathways::sim {

// A device computed from `start` to `end`; from `arrived` to `start` it stood still, waiting for the rest of its gang.
struct Interval {
  uint32_t device = 0;
  uint32_t client = 0;
  uint32_t program = 0;  // index into Trace::names(): the program, or the function run alone
  uint32_t node = 0;     // index into Trace::names(): the node, or the function
  uint64_t run = 0;
  int64_t arrived = 0;  // ns
  int64_t start = 0;
  int64_t end = 0;
};

class Trace {
 public:
  explicit Trace(size_t limit = 4'000'000) : limit_(limit) {}

  uint32_t Name(std::string_view text);
  void Add(const Interval& interval);
  void Clear();

  const std::vector<Interval>& intervals() const { return intervals_; }
  const std::vector<std::string>& names() const { return names_; }
  uint64_t dropped() const { return dropped_; }

 private:
  size_t limit_;
  std::vector<Interval> intervals_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> index_;
  uint64_t dropped_ = 0;
};

// `devices_per_host` groups devices into processes of the viewer.
std::string ToChromeJson(const Trace& trace, uint32_t devices_per_host);

struct PictureOptions {
  int64_t from = 0;  // ns
  int64_t to = INT64_MAX;
  uint32_t max_devices = 32;  // rows; the devices with the lowest numbers
  double width = 1200;        // pixels
  double row_height = 18;
};
// One row per device, time to the right, one colour per client, idle time white.
std::string ToSvg(const Trace& trace, const PictureOptions& options);

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_TRACE_H_
