// Named values of the PJRT C API: options of clients and topologies, attributes of devices, properties of executables.
//
// Ownership: plain values; ToNamedValues gives views that borrow its argument. Threads: pure functions.
#ifndef PTPATHWAYS_PJRT_NAMED_VALUE_H_
#define PTPATHWAYS_PJRT_NAMED_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {

using NamedValue = std::variant<int64_t, bool, float, std::string, std::vector<int64_t>>;
using NamedValues = std::map<std::string, NamedValue>;

std::vector<PJRT_NamedValue> ToNamedValues(const NamedValues& values);
NamedValues FromNamedValues(const PJRT_NamedValue* values, size_t count);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_NAMED_VALUE_H_
