// EarlyMessages: what came before this host joined its cluster, in bounded number and size.
//
// A pure state machine. Ownership: plain value. Threads: none inside; the data thread's.
#ifndef PTPATHWAYS_DATAPLANE_EARLY_MESSAGES_H_
#define PTPATHWAYS_DATAPLANE_EARLY_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/transport/frame.h"

namespace pathways::dataplane {

class EarlyMessages {
 public:
  static constexpr size_t kMost = 4096;
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;

  // `route`: what the socket calls the sender. RESOURCE_EXHAUSTED: it is not kept.
  Status Keep(std::string_view route, transport::Frames& frames) {
    uint64_t size = 0;
    for (const transport::Frame& frame : frames) size += frame.size();
    if (messages_.size() >= kMost || bytes_ + size > kMostBytes) {
      return ResourceExhausted("too many messages before this host joined its cluster");
    }
    bytes_ += size;
    messages_.emplace_back(std::string(route), std::move(frames));
    return OkStatus();
  }
  // In the order in which they came, with their senders.
  std::vector<std::pair<std::string, transport::Frames>> Take() { return std::exchange(messages_, {}); }

 private:
  std::vector<std::pair<std::string, transport::Frames>> messages_;
  uint64_t bytes_ = 0;
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_EARLY_MESSAGES_H_
