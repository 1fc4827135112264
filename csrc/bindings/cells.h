// What Python holds of buffers and values.
//
// Ownership: handles. Threads: used with the GIL held.
#ifndef PTPATHWAYS_BINDINGS_CELLS_H_
#define PTPATHWAYS_BINDINGS_CELLS_H_

#include <memory>

#include "csrc/values/buffer.h"
#include "csrc/values/value.h"

namespace pathways::bindings {

struct PyCell {
  std::shared_ptr<values::BufferCell> cell;
};
struct PyValue {
  values::ValuePtr value;
};

}  // namespace pathways::bindings

#endif  // PTPATHWAYS_BINDINGS_CELLS_H_
