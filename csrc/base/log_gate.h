// LogGate: what of a peer's mistakes is worth a line in the log. A peer that sends nonsense sends much of it; each is
// told a few times a minute, and how often it went on. What it sent itself is escaped.
//
// Pure. Ownership: a value. Threads: plain value; time is given.
#ifndef PTPATHWAYS_BASE_LOG_GATE_H_
#define PTPATHWAYS_BASE_LOG_GATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace pathways {

// Printable ASCII; all else, line breaks too, as \xNN. At most `limit` bytes of `text`.
inline std::string Escaped(std::string_view text, size_t limit = 500) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : text.substr(0, limit)) {
    if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    }
  }
  return text.size() > limit ? out + "..." : out;
}

class LogGate {
 public:
  static constexpr int64_t kWindowMs = 60'000;
  static constexpr uint64_t kLinesPerWindow = 5;
  static constexpr size_t kMaxPeers = 1024;  // beyond, all others share one entry

  // The line to log, or nothing.
  std::optional<std::string> Note(std::string_view peer, std::string_view line, int64_t now_ms) {
    const std::string name(peer);
    const std::string key = entries_.contains(name) || entries_.size() < kMaxPeers ? name : "further peers";
    Entry& entry = entries_[key];
    if (entry.lines == 0 || now_ms - entry.since_ms >= kWindowMs) {
      const uint64_t unsaid = entry.lines > kLinesPerWindow ? entry.lines - kLinesPerWindow : 0;
      entry = {now_ms, 1};
      return Escaped(line) + (unsaid > 0 ? " (and " + std::to_string(unsaid) + " more of it before)" : "");
    }
    if (++entry.lines > kLinesPerWindow) return std::nullopt;
    return Escaped(line);
  }

 private:
  struct Entry {
    int64_t since_ms = 0;
    uint64_t lines = 0;
  };
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_LOG_GATE_H_
