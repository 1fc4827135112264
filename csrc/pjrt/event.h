// EventHandle: one PJRT_Event, waited for or subscribed to.
//
// Ownership: move-only; destroys its PJRT_Event. Destroying it does not cancel callbacks already subscribed. Shares
//            what is known of the transfer that sets the event, if one does.
// Threads:   IsReady, Await and OnReady may be called from any thread; moving and destroying are the owner's.
//            Callbacks run on a thread of the plugin, or on the caller's when the event is already set; they must not
//            block. TransferFailure: any. Locks: its mutex_ guards status_, a leaf.
#ifndef PTPATHWAYS_PJRT_EVENT_H_
#define PTPATHWAYS_PJRT_EVENT_H_

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/pjrt/api.h"

namespace pathways::pjrt {

// Why a transfer has filled no buffer: whoever is told of the buffer is told of this, whatever the plugin says.
class TransferFailure {
 public:
  void Set(Status status) {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }
  // OK as long as it has not failed.
  Status Get() const {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  Status status_ PW_GUARDED_BY(mutex_);
};

class EventHandle {
 public:
  EventHandle() = default;  // holds nothing; counts as ready and OK
  // `transfer`: what sets the event; null: none.
  EventHandle(std::shared_ptr<const Api> api, PJRT_Event* event,
              std::shared_ptr<const TransferFailure> transfer = nullptr)
      : api_(std::move(api)), event_(event), transfer_(std::move(transfer)) {}
  EventHandle(EventHandle&& other) noexcept
      : api_(std::move(other.api_)),
        event_(std::exchange(other.event_, nullptr)),
        transfer_(std::move(other.transfer_)) {}
  EventHandle& operator=(EventHandle&& other) noexcept;
  ~EventHandle() { Reset(); }

  bool valid() const { return event_ != nullptr; }
  // True also when the plugin cannot tell, so that a caller goes on to Await, which reports why.
  bool IsReady() const;
  // Blocks until the event is set and gives its outcome.
  Status Await() const;
  // Calls `callback` exactly once with the outcome. One heap node, freed after the callback.
  void OnReady(std::function<void(Status)> callback) const;
  void Reset();

 private:
  std::shared_ptr<const Api> api_;
  PJRT_Event* event_ = nullptr;
  std::shared_ptr<const TransferFailure> transfer_;
};

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_EVENT_H_
