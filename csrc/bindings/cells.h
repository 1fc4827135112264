// What Python holds of the plugin's buffers and values.
//
// Ownership: handles. Threads: used with the GIL held.
#ifndef PTPATHWAYS_BINDINGS_CELLS_H_
#define PTPATHWAYS_BINDINGS_CELLS_H_

#include <memory>

#include "csrc/plugin/buffer.h"
#include "csrc/plugin/value.h"

namespace pathways::bindings {

struct PyCell {
  std::shared_ptr<plugin::BufferCell> cell;
};
struct PyValue {
  std::shared_ptr<plugin::Value> value;
};

}  // namespace pathways::bindings

#endif  // PTPATHWAYS_BINDINGS_CELLS_H_
