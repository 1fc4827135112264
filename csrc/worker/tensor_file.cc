#include "csrc/worker/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "csrc/base/crc32c.h"
#include "csrc/base/host_memory.h"
#include "csrc/base/strided.h"

namespace pathways::worker {
namespace {

// Rows shorter than this are not worth a call each: what lies between them is read, too.
constexpr int64_t kShortRow = 64 << 10;
// How much of a file is read at once for them.
constexpr int64_t kWindow = 4 << 20;
// Pieces of a call, so that a disk that fills up is noticed early.
constexpr uint64_t kCallBytes = uint64_t{64} << 20;

// A pipe or a device would be waited for without end, by a thread that others wait for.
Result<int> OpenRegular(const std::string& doing, const std::string& path, const PlaceInFolder& place, int flags) {
  const int link = place.follow ? 0 : O_NOFOLLOW;
  const int fd = openat(*place.folder, place.name.c_str(), flags | link | O_NONBLOCK | O_CLOEXEC, 0666);
  const int error = errno;
  const auto refuse = [&] { return InvalidArgument(doing + " '" + path + "': it is not a regular file"); };
  if (fd < 0 && link != 0 && error == ELOOP) {
    return Status(Code::kPermissionDenied, doing + " '" + path +
                                               "': it is a symbolic link, and below this host's --root none is "
                                               "followed; give the path that it leads to");
  }
  if (fd < 0 && (error == ENXIO || error == EISDIR)) return refuse();
  if (fd < 0) return FileError(doing, path, error);
  struct stat found{};
  if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) return fd;
  close(fd);
  return refuse();
}

BoxView InFile(const wire::FileBox& box) { return {box.at, box.size}; }
BoxView InShard(const wire::FileBox& box) { return {box.start, box.size}; }
bool IsWhole(const wire::FileBox& box, const TensorType& shard) { return box.size == shard.dims; }

}  // namespace

Result<TensorFile> TensorFile::Create(const std::string& path, uint64_t bytes, const FileRoot& root) {
  PW_ASSIGN_OR_RETURN(PlaceInFolder place, root.Find("cannot make", path));
  PlaceInFolder temporary = place;
  temporary.name = TemporaryName(place.name);
  PW_ASSIGN_OR_RETURN(const int fd, OpenRegular("cannot make", path, temporary, O_RDWR | O_CREAT | O_TRUNC));
  TensorFile file(path, std::move(place), fd, bytes, true);
  if (bytes > 0 && fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS) return FileError("no room for", path, errno);
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return FileError("no room for", path, errno);
  }
  return file;
}

Result<TensorFile> TensorFile::OpenToWrite(const std::string& path, uint64_t bytes, const FileRoot& root) {
  PW_ASSIGN_OR_RETURN(PlaceInFolder place, root.Find("cannot write", path));
  PW_ASSIGN_OR_RETURN(const int fd, OpenRegular("cannot write", path, place, O_WRONLY));
  return TensorFile(path, std::move(place), fd, bytes, false);
}

Result<TensorFile> TensorFile::OpenToRead(const std::string& path, uint64_t bytes, const FileRoot& root) {
  PW_ASSIGN_OR_RETURN(PlaceInFolder place, root.Find("cannot read", path));
  PW_ASSIGN_OR_RETURN(const int fd, OpenRegular("cannot read", path, place, O_RDONLY));
  TensorFile file(path, std::move(place), fd, bytes, false);
  struct stat found{};
  if (fstat(fd, &found) != 0) return FileError("cannot read", path, errno);
  if (static_cast<uint64_t>(found.st_size) != bytes) {
    return DataLoss("expected '" + path + "' to have " + std::to_string(bytes) + " bytes, got " +
                    std::to_string(found.st_size) + "; it was cut off, or is another file than the client sees");
  }
  return file;
}

TensorFile::TensorFile(TensorFile&& other) noexcept
    : path_(std::move(other.path_)),
      place_(std::move(other.place_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      made_(std::exchange(other.made_, false)) {}

TensorFile::~TensorFile() {
  if (fd_ >= 0) close(fd_);
  if (made_) unlinkat(*place_.folder, TemporaryName(place_.name).c_str(), 0);
}

Status TensorFile::Check(const wire::FileBox& box, const TensorType& shard, uint64_t file_bytes) {
  const TensorType tensor{shard.dtype, box.dims};
  PW_RETURN_IF_ERROR(tensor.Validate());
  PW_RETURN_IF_ERROR(CheckBox(tensor, InFile(box)));
  PW_RETURN_IF_ERROR(CheckBox(shard, InShard(box)));
  const uint64_t size = static_cast<uint64_t>(tensor.ByteSize());
  if (box.offset > file_bytes || size > file_bytes - box.offset) {
    return InvalidArgument("expected " + tensor.ToString() + " at byte " + std::to_string(box.offset) +
                           " to lie in a file of " + std::to_string(file_bytes) + " bytes");
  }
  return OkStatus();
}

Status TensorFile::Write(std::string_view bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t done = pwrite(fd_, bytes.data(), std::min(bytes.size(), kCallBytes), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return FileError("cannot write", path_, errno);
    bytes.remove_prefix(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
  return OkStatus();
}

Status TensorFile::WriteBox(const wire::FileBox& box, const TensorType& shard, const void* from) {
  PW_RETURN_IF_ERROR(Check(box, shard, bytes_));
  HostMemory dense;
  const char* next = static_cast<const char*>(from);
  if (!IsWhole(box, shard)) {
    dense = HostMemory(static_cast<size_t>(BoxBytes(shard, InShard(box))));
    GatherBox(shard, InShard(box), from, 0, dense.size(), dense.data());
    next = dense.data();
  }
  return VisitRows({shard.dtype, box.dims}, InFile(box), [&](int64_t offset, int64_t bytes) {
    const std::string_view row(next, static_cast<size_t>(bytes));
    next += bytes;
    return Write(row, box.offset + static_cast<uint64_t>(offset));
  });
}

Status TensorFile::Read(void* to, uint64_t size, uint64_t offset) const {
  char* next = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t done = pread(fd_, next, std::min(size, kCallBytes), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return FileError("cannot read", path_, errno);
    if (done == 0) return DataLoss("'" + path_ + "' ends at byte " + std::to_string(offset) + "; it was cut off");
    next += done;
    size -= static_cast<uint64_t>(done);
    offset += static_cast<uint64_t>(done);
  }
  return OkStatus();
}

Status TensorFile::ReadBox(const wire::FileBox& box, const TensorType& shard, void* to) const {
  PW_RETURN_IF_ERROR(Check(box, shard, bytes_));
  const TensorType tensor{shard.dtype, box.dims};
  HostMemory dense;
  char* next = static_cast<char*>(to);
  const bool whole = IsWhole(box, shard);
  if (!whole) {
    dense = HostMemory(static_cast<size_t>(BoxBytes(shard, InShard(box))));
    next = dense.data();
  }
  HostMemory window;
  int64_t window_start = 0, window_end = 0;
  PW_RETURN_IF_ERROR(VisitRows(tensor, InFile(box), [&](int64_t offset, int64_t bytes) {
    char* const row = std::exchange(next, next + bytes);
    if (bytes >= kShortRow) return Read(row, static_cast<uint64_t>(bytes), box.offset + static_cast<uint64_t>(offset));
    if (offset + bytes > window_end) {
      if (window.size() == 0) window = HostMemory(static_cast<size_t>(std::min(kWindow, tensor.ByteSize())));
      window_start = offset;
      window_end = std::min(offset + static_cast<int64_t>(window.size()), tensor.ByteSize());
      PW_RETURN_IF_ERROR(Read(window.data(), static_cast<uint64_t>(window_end - window_start),
                              box.offset + static_cast<uint64_t>(window_start)));
    }
    std::memcpy(row, window.data() + (offset - window_start), static_cast<size_t>(bytes));
    return OkStatus();
  }));
  if (!whole) ScatterBox(shard, InShard(box), dense.data(), 0, dense.size(), to);
  return OkStatus();
}

Result<std::string> TensorFile::State() const {
  struct stat found{};
  if (fstat(fd_, &found) != 0) return FileError("cannot read", path_, errno);
  return std::to_string(found.st_dev) + " " + std::to_string(found.st_ino) + " " + std::to_string(found.st_size) + " " +
         std::to_string(found.st_ctim.tv_sec) + " " + std::to_string(found.st_ctim.tv_nsec);
}

Result<uint32_t> TensorFile::Checksum() const {
  HostMemory part(static_cast<size_t>(std::min(bytes_, uint64_t{kWindow})));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < bytes_; at += part.size()) {
    const uint64_t size = std::min(bytes_ - at, uint64_t{part.size()});
    PW_RETURN_IF_ERROR(Read(part.data(), size, at));
    crc = Crc32c(part.data(), static_cast<size_t>(size), crc);
  }
  return crc;
}

Status TensorFile::CheckContents(uint32_t crc32c) const {
  PW_ASSIGN_OR_RETURN(const uint32_t found, Checksum());
  if (found == crc32c) return OkStatus();
  return DataLoss("'" + path_ + "' is damaged: expected contents of checksum " + std::to_string(crc32c) + ", got " +
                  std::to_string(found) + "; something has changed the file since it was saved");
}

Status TensorFile::Finish() {
  if (fdatasync(fd_) != 0) return FileError("cannot write", path_, errno);
  if (close(std::exchange(fd_, -1)) != 0) return FileError("cannot write", path_, errno);
  if (!made_) return OkStatus();
  const int folder = *place_.folder;
  if (renameat(folder, TemporaryName(place_.name).c_str(), folder, place_.name.c_str()) != 0) {
    return FileError("cannot make", path_, errno);
  }
  made_ = false;
  return OkStatus();
}

}  // namespace pathways::worker
