// What remains of a module without its names, ids, source lines and some of its numbers: equal for modules that differ
// in nothing else.
//
// Threads: pure function of bytes. Bytes that are not a module give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_SKELETON_H_
#define PTPATHWAYS_HLO_SKELETON_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::hlo {

// By position of an instruction in the entry computation: which of its numbers are left out, -1 for a constant's value,
// else the dimension of a slice or of a pad.
using OpenNumbers = std::map<size_t, std::vector<int>>;

// Not a module: ids are in the order in which they are met.
//
// With `sizes`, it leaves out sizes too, and gives them: dimensions of the program's shape, parameters first, then
// those of the entry's instructions with limits of slices and sizes of dynamic slices and of gathers. Sizes in other
// fields, such as windows, belong to the skeleton.
Result<std::string> Skeleton(std::string_view module, const OpenNumbers& open, std::vector<int64_t>* sizes = nullptr);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_SKELETON_H_
