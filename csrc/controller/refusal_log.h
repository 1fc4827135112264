// RefusalLog: which refused callers are worth a line in the log. Whoever knocks with a wrong token does so again and
// again; each address is told once, and later at most once a minute with the number of its attempts.
//
// Ownership: a value. Threads: plain value; time is given. Pure.
#ifndef PTPATHWAYS_CONTROLLER_REFUSAL_LOG_H_
#define PTPATHWAYS_CONTROLLER_REFUSAL_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace pathways::controller {

class RefusalLog {
 public:
  static constexpr uint64_t kQuietMs = 60'000;
  static constexpr size_t kMaxAddresses = 1024;  // beyond, all others share one entry

  // The line to log for a refused connection from `address` (empty: not known), or nothing.
  // `hung_up`: the caller ended it, having said nothing wrong (it may have seen that it lacks a token).
  std::optional<std::string> Note(const std::string& address, bool hung_up, uint64_t now_ms) {
    const std::string known = address.empty() ? "an unknown address" : address;
    const std::string& key = entries_.contains(known) || entries_.size() < kMaxAddresses ? known : kOthers;
    auto [entry, is_new] = entries_.try_emplace(key);
    ++entry->second.attempts;
    if (!is_new && now_ms - entry->second.told_ms < kQuietMs) return std::nullopt;
    entry->second.told_ms = now_ms;
    return "refused a connection from " + key + ": " +
           (hung_up ? "it ended before it showed the cluster's join token" : "its join token is wrong or missing") +
           (is_new ? "" : " (" + std::to_string(entry->second.attempts) + " times so far)");
  }

 private:
  struct Entry {
    uint64_t attempts = 0;
    uint64_t told_ms = 0;
  };
  inline static const std::string kOthers = "further addresses";
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_REFUSAL_LOG_H_
