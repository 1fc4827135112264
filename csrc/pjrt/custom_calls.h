// Custom calls that programs on our workers may contain, served by this process through the plugin's FFI extension.
//
// pathways.wait {microseconds = N : i64} (x) -> x: occupies its device for N microseconds, as an accelerator does from
// its host's point of view: no core is used but for the last 60 us, which make it exact. Calls on one device take
// turns. For measuring and trying schedules where there is no accelerator.
//
// pathways.collective: what hlo/serve_collectives.h makes of collectives; see collective_calls.h.
//
// pathways.kernel: what hlo/use_kernels.h makes of convolutions and products of matrices; see kernel_calls.h.
//
// Ownership: nothing; the plugin keeps the handlers for the life of the process. Threads: Register once per plugin;
//            handlers run on the plugin's threads. Locks: one per device while it is occupied.
#ifndef PTPATHWAYS_PJRT_CUSTOM_CALLS_H_
#define PTPATHWAYS_PJRT_CUSTOM_CALLS_H_

#include <string_view>

#include "csrc/base/status.h"
#include "csrc/pjrt/api.h"

namespace pathways::pjrt {

// Registers them for `platform` ("cpu"). A plugin without the extension, or another platform, is left as it is: a
// module that names one of the calls then fails to compile, with the plugin's message. OK when already registered.
Status RegisterCustomCalls(const Api& api, std::string_view platform);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_CUSTOM_CALLS_H_
