// DiskCache: serialized executables in a folder, so that a cluster started again need not compile again. A training
// step that compiles for six seconds is read back in a third of one.
//
// An executable is code: the folder must belong to this user, and nobody else may write there. Files carry the whole
// content they were made from and a checksum, so neither a hash that two contents share nor a torn file does harm.
//
// Ownership: plain value; the files outlive it. Threads: any; processes may share a folder.
#ifndef PTPATHWAYS_WORKER_DISK_CACHE_H_
#define PTPATHWAYS_WORKER_DISK_CACHE_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "csrc/base/status.h"

namespace pathways::worker {

class DiskCache {
 public:
  // Makes the folder when it is not there. `maker`: what an executable depends on beside its content, such as the
  // plugin's version and the kind of machine. PERMISSION_DENIED when others can write to the folder.
  static Result<DiskCache> Open(const std::string& folder, std::string maker, uint64_t max_bytes = uint64_t{2} << 30);

  // Held by the one of several processes that makes what is missing, while the others wait for it. The kernel takes it
  // back when its process ends.
  class Turn {
   public:
    explicit Turn(int fd) : fd_(fd) {}
    bool held() const { return fd_ >= 0; }
    Turn(Turn&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    int fd_;
  };
  // Waits for the turn at this content while its holder runs on this machine and is not stopped, ten minutes at most:
  // without the turn a thing is made twice, which does no harm. Without a file to lock there are no turns.
  Turn TakeTurn(std::string_view content) const;

  // NOT_FOUND when there is none, DATA_LOSS when what is there is not whole.
  Result<std::string> Load(std::string_view content) const;
  // Replaces what is there; then the files used longest ago go until all together are within max_bytes.
  Status Store(std::string_view content, std::string_view executable) const;

 private:
  DiskCache(std::filesystem::path folder, std::string maker, uint64_t max_bytes)
      : folder_(std::move(folder)), maker_(std::move(maker)), max_bytes_(max_bytes) {}
  std::filesystem::path PathOf(const std::string& key) const;
  void Prune() const;

  std::filesystem::path folder_;
  std::string maker_;
  uint64_t max_bytes_;
};

// What this machine's code generators look at: the processor's model and features. Empty when it cannot be told.
std::string ProcessorText();
// The version of the machine's NVIDIA driver, which links what is loaded. Empty without one.
std::string DriverText();

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_DISK_CACHE_H_
