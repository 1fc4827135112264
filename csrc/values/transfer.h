// Moving the bytes of values to the host and to other devices, after everything that was submitted for them before.
//
// Ownership: what is under way shares its value. The destination of a fetch is the caller's, and nobody writes to it
//            once the event is set.
// Threads:   any; no call waits. Locks: those of one fetch; no session is called under them.
#ifndef PTPATHWAYS_VALUES_TRANSFER_H_
#define PTPATHWAYS_VALUES_TRANSFER_H_

#include <cstdint>
#include <memory>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/values/value.h"

namespace pathways::values {

// A copy of `value` on `device`, submitted at once, held behind what its device's gangs hold.
Result<ValuePtr> CopyValue(const ValuePtr& value, PJRT_Device* device);
// Writes bytes [offset, offset + size) of the value, dense and row-major, to `destination`.
std::shared_ptr<Event> FetchValue(const ValuePtr& value, void* destination, uint64_t offset, uint64_t size);

// Set when all of the value is there.
std::shared_ptr<Event> ReadyOf(const ValuePtr& value);

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_TRANSFER_H_
