// CellWatch: which buffers a thread asks about.
//
// Ownership: shares the cells. Threads: of the thread that makes it. Locks: none.
#ifndef PTPATHWAYS_PLUGIN_CELL_WATCH_H_
#define PTPATHWAYS_PLUGIN_CELL_WATCH_H_

#include <memory>
#include <vector>

#include "csrc/values/buffer.h"

namespace pathways::plugin {

// While one is alive, the cells of the buffers that this thread asks of with PJRT_Buffer_IsDeleted are noted, in order:
// callers look that way at every buffer of a tensor that lies on several devices, and at nothing else. One per thread.
class CellWatch {
 public:
  CellWatch();
  ~CellWatch();
  CellWatch(const CellWatch&) = delete;
  CellWatch& operator=(const CellWatch&) = delete;

  // Each once, where it was first asked of.
  const std::vector<std::shared_ptr<values::BufferCell>>& cells() const { return cells_; }
  void Note(const std::shared_ptr<values::BufferCell>& cell);

 private:
  std::vector<std::shared_ptr<values::BufferCell>> cells_;
};

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_CELL_WATCH_H_
