// The entry computation of a module whose length is a parameter, out of those of two modules of consecutive lengths.
//
// Every growing dimension has its size at the bound, so that all shapes are static; behind the length, arrays hold
// anything. Where an instruction would let that into a result, a mask or a clamp stands before it: reductions and the
// contracted dimensions of dots, concatenations along the growing dimension, indices that the length bounds.
//
// Threads: pure function of bytes.
#ifndef PTPATHWAYS_HLO_LENGTH_ENTRY_H_
#define PTPATHWAYS_HLO_LENGTH_ENTRY_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/hlo/growing_shape.h"

namespace pathways::hlo {

using ComputationsById = std::map<int64_t, std::string_view>;

// The length is parameter number `parameter`. `computations`: those of the longer module. UNIMPLEMENTED, with the name
// of the instruction, for those with growing arrays that are not known to be computed rightly.
Result<std::string> EntryWithLength(std::string_view shorter, std::string_view longer,
                                    const ComputationsById& computations, const LengthBound& bound, int64_t parameter);

// A ProgramShapeProto at the bound, with the length as its last parameter.
Result<std::string> ProgramShapeWithLength(std::string_view shorter, std::string_view longer, const LengthBound& bound);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_LENGTH_ENTRY_H_
