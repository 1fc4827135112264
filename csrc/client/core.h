// Core: what the parts of a session (parts.h) share: who this client is, its ids, its way to the controller and to the
// hosts' data planes, the hosts, what has failed, and the lock.
//
// Ownership: owned by the session's parts, which borrow it; borrows the session.
// Threads:   any.
// Locks:     `mutex` guards what is annotated here and the tables of all parts. Events are set and messages are sent
//            without it.
#ifndef PTPATHWAYS_CLIENT_CORE_H_
#define PTPATHWAYS_CLIENT_CORE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/hosts.h"
#include "csrc/client/link.h"
#include "csrc/client/releases.h"
#include "csrc/wire/message.h"

namespace pathways::dataplane {
class DataPlane;
}

namespace pathways::client {

class Session;

struct Core {
  // `of`: what handles keep alive; null where none are made, as in tests of single parts.
  Core(SessionOptions session_options, Session* of) : options(std::move(session_options)), session(of) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // The session, for a handle that keeps it.
  std::shared_ptr<Session> Keep() const;
  uint64_t MintIds(uint64_t count = 1) { return next_id.fetch_add(count); }

  template <typename Body>
  Status Send(const Body& body, std::vector<Payload> payloads = {}) {
    std::string head = wire::Encode(body);
    if (head.size() > wire::kHeaderBytes + wire::kMaxBodyBytes) return TooLong(head);
    return link->Send(std::move(head), std::move(payloads));
  }
  // Sends what dropped handles leave; the second one only if it is enough to matter to the memory of a run.
  void SendReleases();
  void SendLargeReleases() {
    {
      std::lock_guard lock(mutex);
      if (!releases.large()) return;
    }
    SendReleases();
  }

  // FAILED_PRECONDITION: the session is closed; CANCELLED: the controller is lost.
  Status CheckOpen() const PW_REQUIRES(mutex);
  // The same, and the host is alive.
  Status CheckHost(uint32_t host) const PW_REQUIRES(mutex);
  // The host of a device, if the session is open and the host alive.
  Result<uint32_t> HostOf(uint32_t device) const;
  // What users of handles hear after the session was closed.
  std::string LeftText() const;

  const SessionOptions options;
  Session* const session;
  std::unique_ptr<Link> link;
  // Made while messages arrive already. Null before, and constant afterwards.
  std::atomic<dataplane::DataPlane*> data{nullptr};

  // Constant once the controller has answered:
  std::string cluster;
  uint32_t client_index = 0;

  std::atomic<uint64_t> next_id{0};
  std::atomic<bool> closed{false};

  mutable std::mutex mutex;
  std::condition_variable changed;  // something has ended, or the session is closed
  Hosts hosts PW_GUARDED_BY(mutex);
  Status controller_lost PW_GUARDED_BY(mutex);
  std::unordered_map<uint64_t, Status> failed_buffers PW_GUARDED_BY(mutex);  // until their handles are dropped
  Releases releases PW_GUARDED_BY(mutex);

 private:
  static Status TooLong(const std::string& head);
};

// While one lives, this thread is in a callback of a session, which cannot end there: its threads are waited for.
class InCallback {
 public:
  InCallback() { ++depth_; }
  ~InCallback() { --depth_; }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
  static bool on_this_thread() { return depth_ > 0; }

 private:
  inline static thread_local int depth_ = 0;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_CORE_H_
