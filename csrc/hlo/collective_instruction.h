// Reading a collective instruction of a serialized HloModuleProto, and writing it down as the attributes of a custom
// call, which pjrt/collective_calls.cc reads back.
//
// Threads: pure functions.
#ifndef PTPATHWAYS_HLO_COLLECTIVE_INSTRUCTION_H_
#define PTPATHWAYS_HLO_COLLECTIVE_INSTRUCTION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/hlo/collective.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {

// Name of the custom call that stands for every collective.
inline constexpr std::string_view kCollectiveCall = "pathways.collective";

// By id of the computation: what it reduces two values to, where it is one of the reductions.
using Reductions = std::map<int64_t, std::optional<Reduction>>;
Result<Reductions> ReadReductions(std::string_view module);

bool IsCollective(std::string_view opcode);

struct CollectiveInstruction {
  CollectiveOp op;
  int64_t dimension = 0;  // along which blocks are joined or split
  std::vector<int64_t> operands;
};

// `bytes`: an instruction for which IsCollective is true. Shards it does not name in groups are in groups of their own.
Result<CollectiveInstruction> ReadCollective(std::string_view bytes, std::string_view opcode,
                                             const Reductions& reductions, uint32_t shards);

// The attributes, in MLIR's text form: {groups = array<i64: 0, 1>, ...}. `outer`: of each operand.
std::string CollectiveAttributes(const CollectiveOp& op, const std::vector<int64_t>& outer);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_COLLECTIVE_INSTRUCTION_H_
