// Fetches: values that are on their way into memory of this process, and who may end one.
//
// Bytes are copied without the session's lock. While they are, the destination must stay, so nothing but the end of the
// copy completes the fetch: an error that comes meanwhile is kept until then.
//
// A pure state machine. Ownership: plain value; borrows destinations. Threads: none inside; the session's lock guards
// it.
#ifndef PTPATHWAYS_CLIENT_FETCHES_H_
#define PTPATHWAYS_CLIENT_FETCHES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/client/pending.h"

namespace pathways::client {

struct PendingFetch {
  std::shared_ptr<Event> done;
  char* destination = nullptr;
  uint64_t size = 0;
  uint64_t received = 0;
  uint32_t host = 0;
  bool being_written = false;   // its destination, without the lock
  Status failure = OkStatus();  // that came meanwhile
  int64_t since_ms = NowMs();
};

class Fetches {
 public:
  void Begin(uint64_t request, PendingFetch fetch) { fetches_[request] = std::move(fetch); }

  // Where bytes [offset, offset + size) of `total` go, or null when nobody waits for them. EndWrite follows.
  char* StartWrite(uint64_t request, uint64_t offset, uint64_t size, uint64_t total) {
    auto it = fetches_.find(request);
    if (it == fetches_.end() || it->second.size != total || offset > total || size > total - offset) return nullptr;
    if (it->second.destination == nullptr) return nullptr;
    it->second.being_written = true;
    return it->second.destination + offset;
  }
  std::optional<Ended> EndWrite(uint64_t request, uint64_t size) {
    auto it = fetches_.find(request);
    if (it == fetches_.end()) return std::nullopt;
    PendingFetch& fetch = it->second;
    fetch.being_written = false;
    fetch.received += size;
    if (fetch.failure.ok() && fetch.received < fetch.size) return std::nullopt;
    Ended ended{std::move(fetch.done), std::move(fetch.failure)};
    fetches_.erase(it);
    return ended;
  }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [request, fetch] : fetches_) visit(fetch);
  }

  std::optional<uint32_t> HostOf(uint64_t request) const {
    auto it = fetches_.find(request);
    return it == fetches_.end() ? std::nullopt : std::optional<uint32_t>(it->second.host);
  }

  bool IsBeingWritten(uint64_t request) const {
    auto it = fetches_.find(request);
    return it != fetches_.end() && it->second.being_written;
  }
  // Takes a fetch out to be completed with `status`; none when there is none, or while it is being written.
  std::optional<PendingFetch> Take(uint64_t request, const Status& status) {
    auto it = fetches_.find(request);
    if (it == fetches_.end() || Kept(it->second, status)) return std::nullopt;
    PendingFetch fetch = std::move(it->second);
    fetches_.erase(it);
    return fetch;
  }
  void Fail(const Loss& loss, Endings& ended) {
    for (auto it = fetches_.begin(); it != fetches_.end();) {
      PendingFetch& fetch = it->second;
      if (!loss.Covers(fetch.host) || Kept(fetch, loss.reason)) {
        ++it;
        continue;
      }
      ended.emplace_back(std::move(fetch.done), loss.reason);
      it = fetches_.erase(it);
    }
  }

 private:
  static bool Kept(PendingFetch& fetch, const Status& status) {
    if (fetch.being_written && fetch.failure.ok()) fetch.failure = status;
    return fetch.being_written;
  }

  std::unordered_map<uint64_t, PendingFetch> fetches_;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_FETCHES_H_
