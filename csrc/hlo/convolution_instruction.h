// Reads an HLO convolution as one of the three convolutions of a kernel library: forward, input gradient or weight
// gradient. HLO writes all of them as one instruction: an input gradient dilates its left operand and turns its right
// one round, a weight gradient contracts over the batch.
//
// Threads: pure functions of bytes; results own what they hold.
#ifndef PTPATHWAYS_HLO_CONVOLUTION_INSTRUCTION_H_
#define PTPATHWAYS_HLO_CONVOLUTION_INSTRUCTION_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/hlo/laid_out_shape.h"
#include "csrc/kernels/convolution.h"

namespace pathways::hlo {

struct ReadConvolution {
  kernels::Convolution convolution;  // its first and second array are the operands, after what follows is done to them
  // How these arrays and the result are to lie in memory.
  LaidOutShape first, second, result;
  // Elements of the left operand to keep along each dimension; empty: all.
  std::vector<std::pair<int64_t, int64_t>> kept;
  // Dimensions along which the right operand is turned round first. With `skips_reverse`, the right operand is the
  // operand of the reverse instruction that the convolution names.
  std::vector<int64_t> reversed;
  bool skips_reverse = false;
};

// `reversed`: the dimensions that the right operand's instruction, a reverse, turns round; empty if it is not one.
// Nothing for what is no such convolution: other element types, no or more than three spatial dimensions, nothing in an
// array, or paddings and dilations that none of the three can express.
Result<std::optional<ReadConvolution>> ReadConvolutionInstruction(std::string_view instruction,
                                                                  const LaidOutShape& left, const LaidOutShape& right,
                                                                  const std::vector<int64_t>& reversed);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_CONVOLUTION_INSTRUCTION_H_
