// Messages about files of tensors: saving shards into files and loading shards out of them (docs/checkpoints.md).
//
// The client computes every offset; a worker moves bytes between its devices' shards and files that it sees itself.
//
// Ownership: plain values owning their contents. Threads: plain values.
#ifndef PTPATHWAYS_WIRE_FILE_BODIES_H_
#define PTPATHWAYS_WIRE_FILE_BODIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/wire/archive.h"
#include "csrc/wire/message.h"

namespace pathways::wire {

// A box that lies in a shard and in a file. The file holds a dense row-major tensor of `dims` from byte `offset` on,
// and of that the box begins at `at`; of the shard it begins at `start`.
struct FileBox {
  uint32_t file = 0;  // index in Load::files; 0 in a Save
  uint64_t offset = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> at;
  std::vector<int64_t> start;
  std::vector<int64_t> size;
  template <typename A>
  void Fields(A& a) {
    a(file)(offset)(dims)(at)(start)(size);
  }
};

struct SavedShard {
  uint64_t buffer = 0;
  uint32_t shard = 0;
  std::vector<FileBox> boxes;
  template <typename A>
  void Fields(A& a) {
    a(buffer)(shard)(boxes);
  }
};

// Writes boxes of shards of one host into one file. Ordered as a read of these buffers; the bytes are written later.
struct Save {
  static constexpr Type kType = Type::kSave;
  uint64_t request = 0;
  uint32_t host = 0;
  std::string path;
  uint64_t file_bytes = 0;  // the whole file's
  // The file is made under a temporary name and renamed when it is on the disk. Otherwise it is there with its full
  // size, and others write their parts of it, too.
  uint8_t create = 1;
  std::string header;  // written from byte 0 on
  std::vector<SavedShard> shards;
  template <typename A>
  void Fields(A& a) {
    a(request)(host)(path)(file_bytes)(create)(header)(shards);
  }
};

struct SourceFile {
  std::string path;
  uint64_t bytes = 0;   // its size when the client looked; another one is an error
  uint8_t checked = 0;  // whether the next is known; then other contents are an error
  uint32_t crc32c = 0;
  template <typename A>
  void Fields(A& a) {
    a(path)(bytes)(checked)(crc32c);
  }
};

// A buffer that a PUT announced: its bytes come out of files instead of as DATA. What no box covers is zero.
struct LoadedShard {
  uint64_t buffer = 0;
  uint64_t key = 0;  // the PUT's
  TensorType type;
  std::vector<FileBox> boxes;
  template <typename A>
  void Fields(A& a) {
    a(buffer)(key)(type)(boxes);
  }
};

// Without shards: only whether the host sees the files.
struct Load {
  static constexpr Type kType = Type::kLoad;
  uint64_t request = 0;
  uint32_t host = 0;
  std::vector<SourceFile> files;
  std::vector<LoadedShard> shards;
  template <typename A>
  void Fields(A& a) {
    a(request)(host)(files)(shards);
  }
};

// The answer to SAVE and LOAD: everything is on the disk, or has been read; or why not.
struct Stored {
  static constexpr Type kType = Type::kStored;
  uint64_t request = 0;
  uint32_t host = 0;
  Status status;
  uint64_t bytes = 0;
  uint64_t elapsed_us = 0;
  uint32_t crc32c = 0;  // of the whole file that a SAVE made
  template <typename A>
  void Fields(A& a) {
    a(request)(host)(status)(bytes)(elapsed_us)(crc32c);
  }
};

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_FILE_BODIES_H_
