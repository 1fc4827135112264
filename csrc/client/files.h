// Files: what hosts write into files and read out of them; no byte of a tensor passes here.
//
// Ownership: owned by the session; borrows the core. Threads: any. Locks: the session's (core.h).
#ifndef PTPATHWAYS_CLIENT_FILES_H_
#define PTPATHWAYS_CLIENT_FILES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/logical_buffer.h"
#include "csrc/client/pending.h"
#include "csrc/wire/file_bodies.h"

namespace pathways::client {

// What a host has done with files.
struct FileOutcome {
  uint64_t bytes = 0;
  uint64_t elapsed_us = 0;
  uint32_t crc32c = 0;  // of a whole file that was made
};
using FileOperation = Question<FileOutcome>;

struct SavedShard {
  Shard shard;
  std::vector<wire::FileBox> boxes;
};

class Files {
 public:
  explicit Files(Core& core) : core_(core) {}

  // Has a host write boxes of shards that lie there into one file. The values are those of now, whatever is submitted
  // later. `save`: request and shards are filled in.
  FileOperation Save(wire::Save save, std::span<const SavedShard> shards);
  // Has a host read announced shards out of files; without shards, only look whether it sees the files.
  FileOperation Load(wire::Load load);

  Status OnStored(const wire::Stored& answer, const Received& received);
  void Fail(const Loss& loss, Endings& ended) PW_REQUIRES(core_.mutex) { open_.Fail(loss, ended); }

 private:
  // OK when the shard can be saved by `host`.
  Status CheckSaved(const Shard& shard, uint32_t host) const;
  // OK when the host is there and holds values.
  Status CheckHost(uint32_t host) const;
  template <typename Message>
  FileOperation AskHost(const Message& message);

  Core& core_;
  Questions<FileOutcome> open_ PW_GUARDED_BY(core_.mutex);
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_FILES_H_
