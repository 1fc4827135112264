// Instructions on growing arrays that look around an element: pads, windows and normalizations.
//
// Threads: functions of their arguments.
#ifndef PTPATHWAYS_HLO_LENGTH_WINDOWS_H_
#define PTPATHWAYS_HLO_LENGTH_WINDOWS_H_

#include <string_view>

#include "csrc/base/status.h"
#include "csrc/hlo/length_indexing.h"
#include "csrc/hlo/length_writer.h"

namespace pathways::hlo {

Status AddGrowingPad(const GrowingInstruction& now, LengthWriter* writer);
// Windows of one element, or, in a growing dimension, of all up to an element or from it on: cumulative sums.
// `computation`: the reduction's.
Status AddGrowingWindow(const GrowingInstruction& now, std::string_view computation, LengthWriter* writer);
// Each feature by itself, where it is the features whose number grows.
Status AddGrowingNormalization(const GrowingInstruction& now, LengthWriter* writer);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_LENGTH_WINDOWS_H_
