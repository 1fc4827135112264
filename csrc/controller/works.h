// Functions and programs of a client, as the controller knows them: which hosts have them, how far these are, and what
// a run of one costs.
//
// Ownership: plain values, owned by Client. Threads: none inside; the owner serialises calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_WORKS_H_
#define PTPATHWAYS_CONTROLLER_WORKS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/memory_ledger.h"
#include "csrc/plan/places.h"
#include "csrc/scheduler/gang_scheduler.h"

namespace pathways::controller {

// How far a host is with compiling a function, or with a plan.
enum class Compile : uint8_t { kPending, kReady, kFailed };

struct FunctionState {
  std::map<uint32_t, Compile> hosts;
  size_t pending = 0;  // of them
  std::string name;
  // Per device, once compiled:
  std::vector<int64_t> output_bytes;
  int64_t temp_bytes = 0;
  // Of the latest run over several devices, which the next one most likely repeats.
  std::vector<uint32_t> devices;
  std::shared_ptr<const scheduler::GangShape> shape;
};

struct PlanState {
  Compile state = Compile::kPending;
  std::vector<uint32_t> devices;  // where the host computes
  // What its outputs keep there, and what a run needs beyond that, by position.
  std::vector<MemoryRequest::Made> made;  // of output `buffer`
  std::vector<uint32_t> made_devices;
  std::vector<MemoryRequest::Scratch> scratch;
};

struct ProgramState {
  std::string name;
  size_t inputs = 0, outputs = 0;
  uint32_t channels = 0;
  std::vector<uint32_t> input_shards;  // of the whole logical buffers
  std::map<uint32_t, PlanState> hosts;
  size_t pending = 0;                                 // hosts whose plan is not ready yet
  Status failure;                                     // of a plan, or the loss of a host: no run can be
  std::shared_ptr<const scheduler::GangShape> shape;  // made for the first run
  MemoryRequest memory;                               // the same, of any run
  // What its runs in place leave for each other, and the buffers in it for the books.
  plan::Places places;
  std::vector<char> overwritten;  // by argument, on any host
  std::shared_ptr<Residents> residents;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_WORKS_H_
