// The custom call `pathways.kernel`, which stands for a convolution or a product of matrices that a kernel library
// computes (hlo/use_kernels.h).
//
//   pathways.kernel {kernel = array<i64: ...>, threads = N} (left, right) -> (result, room)
//
// `kernel` is what kernels::Convolution::Encode or kernels::Product::Encode writes. `room` is a u8[] of no meaning:
// memory to work in, a result so that the plugin plans and accounts for it like any other.
//
// Threads: the handler runs on the plugin's threads and uses `threads` OpenMP threads.
#ifndef PTPATHWAYS_PJRT_KERNEL_CALLS_H_
#define PTPATHWAYS_PJRT_KERNEL_CALLS_H_

#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {

XLA_FFI_Error* ServeKernelCall(XLA_FFI_CallFrame* frame);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_KERNEL_CALLS_H_
