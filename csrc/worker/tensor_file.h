// TensorFile: boxes of tensors in a file, written out of host memory and read into it (docs/checkpoints.md).
//
// What a file holds is a dense row-major tensor at some offset; what memory holds is a shard, dense too. A box of one
// is moved to a box of the other. Nothing is kept in between but what rows that are not contiguous need.
//
// Ownership: owns its file descriptor; movable. A file that is being made and was not finished is removed.
// Threads:   one at a time.
#ifndef PTPATHWAYS_WORKER_TENSOR_FILE_H_
#define PTPATHWAYS_WORKER_TENSOR_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/wire/file_bodies.h"
#include "csrc/worker/file_root.h"

namespace pathways::worker {

class TensorFile {
 public:
  // A new file of `bytes` bytes. It has a name of its own until Finish, and room on the disk where the file system can
  // say so. RESOURCE_EXHAUSTED when there is none.
  static Result<TensorFile> Create(const std::string& path, uint64_t bytes, const FileRoot& root = {});
  // One that is there, to write parts of it.
  static Result<TensorFile> OpenToWrite(const std::string& path, uint64_t bytes, const FileRoot& root = {});
  // One to read. DATA_LOSS unless it has `bytes` bytes.
  static Result<TensorFile> OpenToRead(const std::string& path, uint64_t bytes, const FileRoot& root = {});
  TensorFile(TensorFile&& other) noexcept;
  TensorFile& operator=(TensorFile&&) = delete;
  ~TensorFile();

  Status Write(std::string_view bytes, uint64_t offset);
  // The box of the shard of type `shard` that lies at `from`.
  Status WriteBox(const wire::FileBox& box, const TensorType& shard, const void* from);
  Status ReadBox(const wire::FileBox& box, const TensorType& shard, void* to) const;
  // A text that changes when the file does.
  Result<std::string> State() const;
  // CRC-32C of the whole file, which was made or opened to read.
  Result<uint32_t> Checksum() const;
  // DATA_LOSS, which names the file, unless that is its checksum.
  Status CheckContents(uint32_t crc32c) const;
  // Waits until everything is on the disk; a file that was being made then gets its name.
  Status Finish();

  // INVALID_ARGUMENT unless the box lies in both, and in a file of `file_bytes`.
  static Status Check(const wire::FileBox& box, const TensorType& shard, uint64_t file_bytes);
  // What a new file at `path` is called until it is finished.
  static std::string TemporaryName(const std::string& path) { return path + ".partial"; }

 private:
  TensorFile(std::string path, PlaceInFolder place, int fd, uint64_t bytes, bool made)
      : path_(std::move(path)), place_(std::move(place)), fd_(fd), bytes_(bytes), made_(made) {}
  Status Read(void* to, uint64_t size, uint64_t offset) const;

  std::string path_;
  PlaceInFolder place_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  bool made_ = false;  // has its temporary name
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_TENSOR_FILE_H_
