#include "csrc/worker/file_root.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace pathways::worker {
namespace {

std::shared_ptr<const int> Own(int fd) {
  return std::shared_ptr<const int>(new int(fd), [](const int* owned) {
    close(*owned);
    delete owned;
  });
}

std::string WithoutSlashAtEnd(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Status FileError(const std::string& doing, const std::string& path, int error) {
  const std::string text = doing + " '" + path + "': " + std::strerror(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return NotFound(text + "; checkpoints need a file system that the client and every host see under the same path");
    case EACCES:
    case EPERM:
    case EROFS:
      return Status(Code::kPermissionDenied, text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ResourceExhausted(text + "; make room on the disk and save again");
    default:
      return Status(Code::kInternal, text);
  }
}

Result<FileRoot> FileRoot::Open(const std::string& path) {
  FileRoot root;
  const std::string given = WithoutSlashAtEnd(path);
  if (given.empty() || given == "/") return root;
  if (given[0] != '/')
    return InvalidArgument("the root of a host's files must be an absolute path, got '" + path + "'");
  char* const real = ::realpath(given.c_str(), nullptr);
  const int fd = real == nullptr ? -1 : open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    std::free(real);
    return FileError("cannot open the root of this host's files", path, error);
  }
  root.folder_ = Own(fd);
  root.roots_ = {given, real};
  std::free(real);
  return root;
}

Result<PlaceInFolder> FileRoot::Find(const std::string& doing, const std::string& path) const {
  // What is relative would be so to wherever the worker was started.
  if (path.empty() || path[0] != '/' || path.back() == '/' || path.find('\0') != std::string::npos) {
    return InvalidArgument(doing + ": expected the absolute path of a file, got '" + path + "'");
  }
  const size_t slash = path.rfind('/');
  if (folder_ == nullptr) {
    const int fd = open(path.substr(0, slash + 1).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FileError(doing, path, errno);
    return PlaceInFolder{Own(fd), path.substr(slash + 1), true};
  }
  const auto outside = [&](const std::string& why) {
    return Status(Code::kPermissionDenied, doing + " '" + path + "': " + why +
                                               "; this host reads and writes files below '" + roots_[0] +
                                               "' only (ptpathways worker --root)");
  };
  std::string rest;
  for (const std::string& root : roots_) {
    if (path.starts_with(root + "/")) rest = path.substr(root.size() + 1);
  }
  if (rest.empty()) return outside("it is not below the root");
  std::shared_ptr<const int> folder = folder_;
  for (;;) {
    const size_t end = rest.find('/');
    const std::string part = rest.substr(0, end);
    if (part == "..") return outside("its path has '..' in it");
    if (end == std::string::npos) {
      if (part == ".") return InvalidArgument(doing + ": expected the path of a file, got '" + path + "'");
      return PlaceInFolder{std::move(folder), part, false};
    }
    rest = rest.substr(end + 1);
    if (part.empty() || part == ".") continue;
    const int fd = openat(*folder, part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int error = errno;
    if (fd < 0) {
      // A link is opened as what it is, and is no folder.
      char target[1];
      if (readlinkat(*folder, part.c_str(), target, sizeof target) >= 0) {
        return outside("'" + part + "' is a symbolic link, and none is followed; give the path that it leads to");
      }
      return FileError(doing, path, error);
    }
    folder = Own(fd);
  }
}

}  // namespace pathways::worker
