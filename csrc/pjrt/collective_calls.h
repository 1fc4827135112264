// The custom call `pathways.collective`, which stands for a collective instruction (hlo/serve_collectives.h): its
// handler reads what is asked for, and hands it to the process's CollectiveBackend.
//
//   pathways.collective {kind, reduction, number, members, sizes, outer, block_per_operand} (x..., [order]) -> (y...,
//   order)
//
// `order` is a u32[] of no meaning, there to chain the calls.
//
// Ownership: the backend is borrowed. Threads: SetCollectiveBackend before the first launch and after the last; the
// handler runs on the plugin's threads and blocks them.
#ifndef PTPATHWAYS_PJRT_COLLECTIVE_CALLS_H_
#define PTPATHWAYS_PJRT_COLLECTIVE_CALLS_H_

#include "csrc/hlo/collective.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {

// The one that serves this process's collectives; nullptr: none does, and a call fails with UNIMPLEMENTED.
void SetCollectiveBackend(hlo::CollectiveBackend* backend);

XLA_FFI_Error* ServeCollectiveCall(XLA_FFI_CallFrame* frame);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_COLLECTIVE_CALLS_H_
