// Reads an HLO dot as a product of matrices of a kernel library: whatever it contracts over and whatever is its batch,
// its dimensions make three (batch, rows, columns) wherever they follow one another in memory.
//
// Threads: pure functions of bytes; results own what they hold.
#ifndef PTPATHWAYS_HLO_DOT_INSTRUCTION_H_
#define PTPATHWAYS_HLO_DOT_INSTRUCTION_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/hlo/laid_out_shape.h"
#include "csrc/kernels/product.h"

namespace pathways::hlo {

struct ReadProduct {
  kernels::Product product;
  // How the operands and the result are to lie in memory.
  LaidOutShape left, right, result;
  bool swapped = false;  // the product's left operand is the dot's right one, and its result is read as transposed
};

// `left`, `right`: the operands, as they are thought to lie; one that cannot be read so is wanted in another order.
// `result_order`: how the result should lie, if it can. Nothing for what is no such product: other element types,
// nothing in an array, numerics asked for by name.
Result<std::optional<ReadProduct>> ReadDotInstruction(std::string_view instruction, const LaidOutShape& left,
                                                      const LaidOutShape& right,
                                                      const std::vector<int64_t>& result_order);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_DOT_INSTRUCTION_H_
