// FileRoot: the folder below which a host reads and writes files for its clients.
//
// With a root, a path must lead below it without "..", and no symbolic link on the way is followed: every folder is
// opened from the one before. Without one, any path of this user's may be named.
//
// Ownership: shares the root's descriptor among copies. Threads: constant after Open.
#ifndef PTPATHWAYS_WORKER_FILE_ROOT_H_
#define PTPATHWAYS_WORKER_FILE_ROOT_H_

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::worker {

// An open folder and a name in it.
struct PlaceInFolder {
  std::shared_ptr<const int> folder;  // a descriptor, closed with its last owner
  std::string name;
  bool follow = true;  // whether `name` may be a link
};

class FileRoot {
 public:
  FileRoot() = default;  // none
  // `path`: an absolute path; "/" or empty: none.
  static Result<FileRoot> Open(const std::string& path);

  // Where the file at the absolute path `path` is. INVALID_ARGUMENT: it is none. PERMISSION_DENIED: not below the root,
  // or through a link. `doing` begins errors.
  Result<PlaceInFolder> Find(const std::string& doing, const std::string& path) const;

 private:
  std::vector<std::string> roots_;  // as it was given, and without links
  std::shared_ptr<const int> folder_;
};

// What an errno means for a file.
Status FileError(const std::string& doing, const std::string& path, int error);

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_FILE_ROOT_H_
