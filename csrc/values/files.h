// Files: values that hosts save into files, and values that hosts load out of them.
//
// Saving takes note of what the values are after everything that was submitted before, and waits for nothing. What is
// loaded becomes new values, which whoever asked puts into buffers (BufferCell::Replace) once they are there.
//
// Ownership: shares the values. Threads: any.
#ifndef PTPATHWAYS_VALUES_FILES_H_
#define PTPATHWAYS_VALUES_FILES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/client/session.h"
#include "csrc/values/value.h"

namespace pathways::values {

struct SavedValue {
  ValuePtr value;
  uint32_t shard = 0;  // of the value
  std::vector<wire::FileBox> boxes;
};

// Has `save.host` write boxes of shards that lie there, at least one, into a file.
client::FileOperation SaveValues(wire::Save save, std::vector<SavedValue> values);

// A value of the type of `like`, which lies as that does, whose bytes a LOAD brings.
Result<ValuePtr> AnnounceValue(const Value& like);

// What a LOAD says of a shard of an announced value. FAILED_PRECONDITION for other values, INVALID_ARGUMENT when it has
// no such shard.
Result<wire::LoadedShard> LoadOf(const Value& value, uint32_t shard, std::vector<wire::FileBox> boxes);

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_FILES_H_
