// What makes one module another than the one before it: its types, operations and constants, as short texts that can
// be compared and shown. Read from a serialized HloModuleProto (openxla/xla, xla/service/hlo.proto).
//
// Ownership: plain values. Threads: pure functions of bytes; what is not a module gives INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_SUMMARY_H_
#define PTPATHWAYS_HLO_SUMMARY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::hlo {

struct HloInstructionSummary {
  std::string opcode;
  std::string shape;   // "f32[8,128]"; of a tuple "(f32[2], s32[])"
  std::string detail;  // a constant's value, a parameter's number, a slice's ranges; else a number for all attributes
  std::string source;  // "train.py:42" where the caller's metadata says so
};

struct HloSummary {
  std::string name;
  std::vector<std::string> parameters;  // types, of the entry computation
  std::vector<std::string> results;
  std::vector<HloInstructionSummary> instructions;  // of all computations, in the module's order
};

Result<HloSummary> SummarizeHlo(std::string_view module);

// An operation whose operands come from parameters in two places.
struct Meeting {
  std::string opcode;    // "add"; empty where there is none
  std::string types[2];  // "f32[4,2]", of the operands as they were before they were spread or converted
  int64_t places[2] = {};
  std::string source;  // "file:line", where the module says so
};

// The first one in the entry computation, whose parameter i is in place `places[i]`. Numbers that the tracer passes
// beside the tensors (add's alpha) count as operands only where there is no other meeting.
Result<Meeting> FirstMeeting(std::string_view module, std::span<const int64_t> places);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_SUMMARY_H_
