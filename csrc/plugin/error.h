// PJRT_Error: a Status on its way out to the caller.
//
// Ownership: made here, owned by the caller, freed by PJRT_Error_Destroy. Threads: immutable.
// Locks:     one, for the last statuses that went out, a leaf.
#ifndef PTPATHWAYS_PLUGIN_ERROR_H_
#define PTPATHWAYS_PLUGIN_ERROR_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::plugin {

// Null for an OK status.
PJRT_Error* NewError(Status status);

// Of the last statuses that went out the newest whose message stands in `text`, which a caller has made of it; OK when
// there is none. Threads: any.
Status FindOutgoing(std::string_view text);

// The status that (code, message) coming in through the C API stands for. Unknown codes become UNKNOWN.
Status StatusFromC(PJRT_Error_Code code, const char* message, size_t message_size);

// Slots of the table.
void Error_Destroy(PJRT_Error_Destroy_Args* args) noexcept;
void Error_Message(PJRT_Error_Message_Args* args) noexcept;
PJRT_Error* Error_GetCode(PJRT_Error_GetCode_Args* args) noexcept;
PJRT_Error* Error_ForEachPayload(PJRT_Error_ForEachPayload_Args* args) noexcept;

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_ERROR_H_
