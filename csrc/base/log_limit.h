// LogLimit: so many lines of a log for each peer and minute, and so many in all; and what peers said as text that can
// do no harm there.
//
// Ownership: a value. Threads: plain value; time is given. Pure.
#ifndef PTPATHWAYS_BASE_LOG_LIMIT_H_
#define PTPATHWAYS_BASE_LOG_LIMIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace pathways {

// Bytes that are no printable ASCII become \xhh; what is long is cut off.
inline std::string Printable(std::string_view text, size_t most = 512) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : text.substr(0, most)) {
    if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      out += "\\x";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
  return text.size() > most ? out + "..." : out;
}

class LogLimit {
 public:
  static constexpr uint64_t kMinuteMs = 60'000;
  static constexpr uint32_t kPerPeer = 10;
  static constexpr uint32_t kInAll = 200;

  explicit LogLimit(uint32_t per_peer = kPerPeer) : per_peer_(per_peer) {}

  // `line`, printable, if it may be logged now; with the number of those before it that were not.
  std::optional<std::string> Take(std::string_view peer, std::string_view line, uint64_t now_ms) {
    if (now_ms - minute_ms_ >= kMinuteMs) {
      minute_ms_ = now_ms;
      of_peer_.clear();
      all_ = 0;
    }
    // Once no more lines are logged, no more peers are remembered.
    if (all_ >= kInAll || ++of_peer_[std::string(peer.substr(0, 64))] > per_peer_) {
      ++left_out_;
      return std::nullopt;
    }
    ++all_;
    std::string text = Printable(line);
    if (const uint64_t count = std::exchange(left_out_, 0)) {
      text += " (" + std::to_string(count) + " lines before this one were left out)";
    }
    return text;
  }

 private:
  const uint32_t per_peer_;
  std::unordered_map<std::string, uint32_t> of_peer_;
  uint64_t minute_ms_ = 0;
  uint64_t left_out_ = 0;
  uint32_t all_ = 0;
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_LOG_LIMIT_H_
