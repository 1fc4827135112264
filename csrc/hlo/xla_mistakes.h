// Writes a module such that XLA does not get it wrong (as of the XLA in torch_xla 2.9 and in the CPU plugin):
//
// - It takes `x * convert(mask)` for `select(mask, x, 0)`, so an infinity or NaN behind a mask became 0.
//   Booleans become numbers by a select, which it leaves alone.
// - It takes integers' squares and absolute values for positive, though the first wrap round and that of the smallest
//   integer is itself: of `abs(x * x)` and `x * x < 0` it computed neither. Products are those of unsigned integers, as
//   it finds out itself which are squares, and an absolute value is the larger of a number and its negative.
// - Its CPU devices' own all-reduce of a maximum or minimum drops NaNs. Reductions of floating-point numbers by maximum
//   or minimum become reductions of integers that stand in the same order, with NaN beyond both infinities. Which of
//   them will meet other devices is known only to the partitioner, so all are written anew.
// - Its partitioner takes what it has padded once for the next padding of the same operand by as much, whatever that
//   is to be padded with: an average had the maximum's minus infinity at its borders. Each pad and reduce-window gets
//   its operand for itself, through a barrier.
// - Its partitioner ends the process where the indices of a scatter are of 64 bits and their number is not divided by
//   that of the partitions: it pads them with a number of 32 bits. They become indices of 32 bits, where they can be.
//
// Threads: pure functions of bytes. Bytes that are not a module give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_XLA_MISTAKES_H_
#define PTPATHWAYS_HLO_XLA_MISTAKES_H_

#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace pathways::hlo {

struct MetBy {
  bool partitioner = false;
  bool cpu_collectives = false;  // XLA's, of the CPU devices of one process
};

// The module itself where nothing is to do.
Result<std::string> AvoidXlaMistakes(std::string_view module, MetBy met_by);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_XLA_MISTAKES_H_
