// PJRT_Event: a future of a Status, as callers of the plugin see it.
//
// Ownership: the caller's, until PJRT_Event_Destroy; destroying it cancels nothing, subscribed callbacks still run.
// Threads:   every slot may be called from any thread. A callback subscribed before the event is set runs without any
//            lock of ours: on the thread that sets the event when the event is `direct`, else on a thread of the
//            callback pool, because callers run Python in callbacks of buffers and even wait there for other events.
#ifndef PTPATHWAYS_PLUGIN_EVENT_H_
#define PTPATHWAYS_PLUGIN_EVENT_H_

#include <memory>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/client/session.h"
#include "csrc/values/client.h"
#include "csrc_generated/pjrt_abi.h"

struct PJRT_Event {
  std::shared_ptr<pathways::Event> event;
  // Accounts for waiting; null for events made by PJRT_Event_Create.
  std::shared_ptr<pathways::client::Session> session;
  bool direct = false;
};

namespace pathways::plugin {

// Of a client's session.
PJRT_Event* NewEvent(const values::ClientState& client, std::shared_ptr<Event> event, bool direct);

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_EVENT_H_
