// EventHandle: one PJRT_Event, waited for or subscribed to.
//
// Ownership: move-only; destroys its PJRT_Event. Destroying it does not cancel callbacks already subscribed.
// Threads:   IsReady, Await and OnReady may be called from any thread; moving and destroying are the owner's.
//            Callbacks run on a thread of the plugin, or on the caller's when the event is already set; they must not
//            block.
#ifndef PTPATHWAYS_PJRT_EVENT_H_
#define PTPATHWAYS_PJRT_EVENT_H_

#include <functional>
#include <memory>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/pjrt/api.h"

namespace pathways::pjrt {

class EventHandle {
 public:
  EventHandle() = default;  // holds nothing; counts as ready and OK
  EventHandle(std::shared_ptr<const Api> api, PJRT_Event* event) : api_(std::move(api)), event_(event) {}
  EventHandle(EventHandle&& other) noexcept
      : api_(std::move(other.api_)), event_(std::exchange(other.event_, nullptr)) {}
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
};

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_EVENT_H_
