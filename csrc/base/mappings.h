// Memory mappings of this process, of which the system allows so many (vm.max_map_count, often 65,530). XLA's compiled
// code for CPUs takes three for each kernel, and LLVM ends the process when there is none left.
//
// Threads: any.
#ifndef PTPATHWAYS_BASE_MAPPINGS_H_
#define PTPATHWAYS_BASE_MAPPINGS_H_

#include <cstdint>

namespace pathways {

struct Mappings {
  uint64_t used = 0;
  uint64_t most = 0;  // 0: neither is known

  uint32_t free_percent() const {
    return most == 0 ? 100 : used >= most ? 0 : static_cast<uint32_t>((most - used) * 100 / most);
  }
};

// Takes milliseconds when there are many. `most`: instead of what the system allows, if it is less; 0: that.
Mappings MappingsNow(uint64_t most);

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_MAPPINGS_H_
