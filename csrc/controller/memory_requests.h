// What messages mean for the devices' memory: what functions and plans cost, as their hosts and plans say, and what a
// run of one asks of the ledger.
//
// Pure. Ownership: plain values. Threads: any, one at a time. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_MEMORY_REQUESTS_H_
#define PTPATHWAYS_CONTROLLER_MEMORY_REQUESTS_H_

#include <cstdint>

#include "csrc/controller/memory_ledger.h"
#include "csrc/controller/works.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::controller {

void KeepCosts(const wire::Registered& answer, FunctionState& function);
void KeepCosts(const wire::RegisterPlan& plan, ProgramState& program, PlanState& state);
// `host`: which answers.
void KeepCosts(const wire::PlanReady& answer, const wire::HostDescription& host, PlanState& state);

// Each fills a request that is empty.
void RequestRun(uint32_t client, const wire::Run& run, const FunctionState& function, const scheduler::GangShape& shape,
                MemoryRequest& request);
void RequestProgram(uint32_t client, const wire::RunProgram& run, ProgramState& program, MemoryRequest& request);
// `places`: as they are once the message has gone on.
void RequestInPlace(uint32_t client, const wire::RunInPlace& run, ProgramState& program, const plan::Places& places,
                    MemoryRequest& request);

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_MEMORY_REQUESTS_H_
