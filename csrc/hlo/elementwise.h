// Which instructions make each element of the elements in its place.
//
// Threads: pure functions.
#ifndef PTPATHWAYS_HLO_ELEMENTWISE_H_
#define PTPATHWAYS_HLO_ELEMENTWISE_H_

#include <string_view>

namespace pathways::hlo {

bool IsElementwise(std::string_view opcode);
// Of these, whether it makes zeros of zeros.
bool KeepsZeros(std::string_view opcode);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_ELEMENTWISE_H_
