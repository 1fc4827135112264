// On which device a thread is about to execute.
//
// Ownership: a pointer of each thread; devices are their client's. Threads: a call concerns the thread that makes it.
#ifndef PTPATHWAYS_PLUGIN_DEVICE_H_
#define PTPATHWAYS_PLUGIN_DEVICE_H_

#include "csrc/values/device.h"

namespace pathways::plugin {

// The logical device that this thread asked about last (PJRT_Device_IsAddressable), or null. PyTorch/XLA does so when
// it is about to execute there, then looks at the device of each argument, and ends the process when one is another: by
// this PJRT_Buffer_Device can let it pass, and Execute says what is wrong.
PJRT_Device* AboutToExecuteOn();
void ForgetExecution();

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_DEVICE_H_
