#include "csrc/pjrt/event.h"

namespace pathways::pjrt {
namespace {

struct Subscription {
  std::shared_ptr<const Api> api;
  std::function<void(Status)> callback;
};

// noexcept: an exception must not unwind through the plugin.
void Deliver(PJRT_Error* error, void* user) noexcept {
  std::unique_ptr<Subscription> subscription(static_cast<Subscription*>(user));
  subscription->callback(subscription->api->TakeError(error));
}

}  // namespace

EventHandle& EventHandle::operator=(EventHandle&& other) noexcept {
  if (this != &other) {
    Reset();
    api_ = std::move(other.api_);
    event_ = std::exchange(other.event_, nullptr);
    transfer_ = std::move(other.transfer_);
  }
  return *this;
}

bool EventHandle::IsReady() const {
  if (event_ == nullptr) return true;
  PJRT_Event_IsReady_Args args{};
  args.event = event_;
  return !api_->Call<&PJRT_Api::PJRT_Event_IsReady>(&args).ok() || args.is_ready;
}

Status EventHandle::Await() const {
  if (event_ == nullptr) return OkStatus();
  PJRT_Event_Await_Args args{};
  args.event = event_;
  Status status = api_->Call<&PJRT_Api::PJRT_Event_Await>(&args);
  return status.ok() && transfer_ != nullptr ? transfer_->Get() : status;
}

void EventHandle::OnReady(std::function<void(Status)> callback) const {
  if (event_ == nullptr) return callback(OkStatus());
  if (transfer_ != nullptr) {
    callback = [transfer = transfer_, told = std::move(callback)](Status status) {
      told(status.ok() ? transfer->Get() : std::move(status));
    };
  }
  auto* const subscription = new Subscription{api_, std::move(callback)};
  PJRT_Event_OnReady_Args args{};
  args.event = event_;
  args.callback = &Deliver;
  args.user_arg = subscription;
  Status status = api_->Call<&PJRT_Api::PJRT_Event_OnReady>(&args);
  if (status.ok()) return;
  std::unique_ptr<Subscription> refused(subscription);
  refused->callback(std::move(status));
}

void EventHandle::Reset() {
  if (event_ == nullptr) return;
  PJRT_Event_Destroy_Args args{};
  args.event = std::exchange(event_, nullptr);
  (void)api_->Call<&PJRT_Api::PJRT_Event_Destroy>(&args);  // nothing to do about a failing destructor
  api_.reset();
  transfer_.reset();
}

}  // namespace pathways::pjrt
