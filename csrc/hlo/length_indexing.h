// Instructions on growing arrays that take or write parts: slices, updates, gathers, scatters.
//
// An index behind the end of an array is taken for the last that fits. The array ends at its length, not at its bound:
// indices are limited to what fits there.
//
// Threads: functions of their arguments.
#ifndef PTPATHWAYS_HLO_LENGTH_INDEXING_H_
#define PTPATHWAYS_HLO_LENGTH_INDEXING_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/hlo/growing_shape.h"
#include "csrc/hlo/length_writer.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {

struct GrowingValue {
  GrowingShape shape;
  // For each dimension of an array: whether it grows and zeros lie behind the length.
  std::vector<bool> zero;
};

struct GrowingInstruction {
  std::string_view shorter, longer;  // encoded
  Instruction instruction;           // the longer one's
  std::vector<int64_t> operands;
  std::vector<const GrowingValue*> inputs;  // the operands
  GrowingShape shape;
  std::vector<bool> zero;      // of the result
  int64_t shorter_length = 0;  // of the shorter module

  Status Refuse(std::string_view why = "") const;
};

// These write the instruction, and may set in `zero` the dimensions behind whose length the result has zeros.
Status AddGrowingSlice(const GrowingInstruction& now, LengthWriter* writer, std::vector<bool>* zero);
Status AddGrowingDynamicSlice(const GrowingInstruction& now, LengthWriter* writer);
Status AddGrowingUpdate(const GrowingInstruction& now, LengthWriter* writer, std::vector<bool>* zero);
Status AddGrowingGather(const GrowingInstruction& now, LengthWriter* writer);
Status AddGrowingScatter(const GrowingInstruction& now, LengthWriter* writer);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_LENGTH_INDEXING_H_
