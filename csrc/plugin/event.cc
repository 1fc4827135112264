#include "csrc/plugin/event.h"

#include <utility>

#include "csrc/plugin/entry.h"
#include "csrc/plugin/error.h"
#include "csrc/values/callback_pool.h"

namespace pathways::plugin {
PJRT_Event* NewEvent(const values::ClientState& client, std::shared_ptr<Event> event, bool direct) {
  return new PJRT_Event{std::move(event), client.session(), direct};
}

Status Event_Destroy(PJRT_Event_Destroy_Args* args) {
  delete args->event;
  return OkStatus();
}

Status Event_IsReady(PJRT_Event_IsReady_Args* args) {
  args->is_ready = args->event->event->IsReady();
  return OkStatus();
}

Status Event_Error(PJRT_Event_Error_Args* args) {
  std::optional<Status> status = args->event->event->TryGet();
  if (!status) {
    return FailedPrecondition("PJRT_Event_Error was called before the event was ready; call PJRT_Event_Await");
  }
  return *status;
}

Status Event_Await(PJRT_Event_Await_Args* args) {
  // The caller may destroy the PJRT_Event from another thread once it is set.
  const std::shared_ptr<Event> event = args->event->event;
  const std::shared_ptr<client::Session> session = args->event->session;
  if (std::optional<Status> status = event->TryGet()) return *status;
  return session != nullptr ? session->waiting().Wait(event) : event->Wait();
}

Status Event_OnReady(PJRT_Event_OnReady_Args* args) {
  if (args->callback == nullptr) return InvalidArgument("PJRT_Event_OnReady: the callback is null");
  const PJRT_Event_OnReadyCallback callback = args->callback;
  void* const user_arg = args->user_arg;
  const std::shared_ptr<Event> event = args->event->event;
  if (std::optional<Status> status = event->TryGet()) {
    callback(NewError(*std::move(status)), user_arg);
    return OkStatus();
  }
  if (args->event->direct) {
    event->OnReady([callback, user_arg](const Status& status) { callback(NewError(status), user_arg); });
  } else {
    event->OnReady([callback, user_arg](const Status& status) {
      values::RunOnPool([callback, user_arg, status] { callback(NewError(status), user_arg); });
    });
  }
  return OkStatus();
}

Status Event_Create(PJRT_Event_Create_Args* args) {
  // Direct: the setter may free what the callbacks read as soon as PJRT_Event_Set returns.
  args->event = new PJRT_Event{Event::Make(), nullptr, true};
  return OkStatus();
}

Status Event_Set(PJRT_Event_Set_Args* args) {
  if (!args->event->event->Set(StatusFromC(args->error_code, args->error_message, args->error_message_size))) {
    return FailedPrecondition("PJRT_Event_Set: the event is already set");
  }
  return OkStatus();
}

}  // namespace pathways::plugin
