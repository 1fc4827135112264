// Buffers: what the C API's functions for them have to do with captured steps and adopted values.
//
// Ownership: what is adopted next is the calling thread's. Threads: any, except where a thread is named. Locks: none.
#ifndef PTPATHWAYS_PLUGIN_BUFFER_H_
#define PTPATHWAYS_PLUGIN_BUFFER_H_

#include <memory>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/values/buffer.h"

namespace pathways::plugin {

// As CopyValue, and a recording notes it.
Result<values::ValuePtr> CopyNoted(const values::ValuePtr& value, PJRT_Device* device);

// Makes the next calls of PJRT_Client_BufferFromHostBuffer of this thread return handles of `values`, one each, instead
// of uploading; an empty list takes that back. Takes over the caller's holds on the values. See adopt.h.
void SetNextUploads(std::vector<values::ValuePtr> values);

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

#endif  // PTPATHWAYS_PLUGIN_BUFFER_H_
