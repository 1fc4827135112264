// From a module for one device to one for a slice: how its parameters and results lie there.
//
// A front end that knows of one device traces a module of whole tensors. Its parameters lie as the values that they are
// given; a result that takes the place of a donated parameter lies as that parameter does; all else XLA decides. The
// numbers do not depend on any of it.
//
// Threads: pure functions of bytes. Bytes that are not a module give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_LAY_OUT_H_
#define PTPATHWAYS_HLO_LAY_OUT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tiling.h"

namespace pathways::hlo {

// What the target of custom calls begins with that have one operand and a result of its type, by which a front end says
// how a value lies: "pathways.shard:parts=1,2;tiles=0,1,0,1", with Tiling's parts and tiles. (PyTorch/XLA tells custom
// calls apart by their targets alone.)
inline constexpr char kShardTarget[] = "pathways.shard:";

struct LaidOut {
  std::string module;
  // By result: whether XLA decides (pjrt::WithFreeResults).
  std::vector<bool> free;
};

// `parameters`: by number, over `devices` devices. UNIMPLEMENTED: a module whose only parameter is a tuple.
Result<LaidOut> LayOut(std::string_view module, std::span<const TilingPtr> parameters, size_t devices);

// The module for a slice of one device, where nothing is to be said. Most modules are returned as they are.
Result<std::string> WithoutLayouts(std::string_view module);

// For each result the donated parameter that it takes the place of, or -1: one of its type that it is computed from
// element by element, the nearest first, each taken once.
Result<std::vector<int64_t>> Successors(std::string_view module);

// For each result the parameter that it is, as it came or laid another way, or -1: one that is computed.
Result<std::vector<int64_t>> PassedParameters(std::string_view module);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_LAY_OUT_H_
