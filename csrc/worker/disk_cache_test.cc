#include "csrc/worker/disk_cache.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

namespace fs = std::filesystem;

class CacheFolder {
 public:
  CacheFolder() { EXPECT(mkdtemp(path_) != nullptr); }
  ~CacheFolder() { fs::remove_all(path_); }
  std::string path() const { return path_; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(path_)) out.push_back(entry.path());
    return out;
  }

 private:
  char path_[32] = "/tmp/pw-test-XXXXXX";
};

TEST(WhatIsStoredComesBackToItsMakerOnly) {
  const CacheFolder folder;
  ASSERT_OK_AND_ASSIGN(const DiskCache cache, DiskCache::Open(folder.path() + "/deep/er", "plugin 1"));
  EXPECT(cache.Load("module").status().code() == Code::kNotFound);
  ASSERT_OK(cache.Store("module", "executable"));
  ASSERT_OK(cache.Store("other", ""));
  ASSERT_OK_AND_ASSIGN(const DiskCache later, DiskCache::Open(folder.path() + "/deep/er", "plugin 1"));
  ASSERT_OK_AND_ASSIGN(const std::string first, later.Load("module"));
  EXPECT_EQ(first, "executable");
  ASSERT_OK_AND_ASSIGN(const std::string empty, later.Load("other"));
  EXPECT_EQ(empty, "");
  ASSERT_OK_AND_ASSIGN(const DiskCache newer, DiskCache::Open(folder.path() + "/deep/er", "plugin 2"));
  EXPECT(!newer.Load("module").ok());
}

TEST(AFileThatIsNotWholeIsNotThere) {
  const CacheFolder folder;
  ASSERT_OK_AND_ASSIGN(const DiskCache cache, DiskCache::Open(folder.path(), "p"));
  ASSERT_OK(cache.Store("module", "executable"));
  ASSERT_EQ(folder.files().size(), size_t{1});  // no drafts left
  const fs::path path = folder.files()[0];
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes.substr(0, size);
    EXPECT(cache.Load("module").status().code() == Code::kDataLoss);
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string bent = bytes;
    bent[at] = static_cast<char>(bent[at] ^ 0x10);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bent;
    EXPECT(cache.Load("module").status().code() == Code::kDataLoss);
  }
  ASSERT_OK(cache.Store("module", "executable"));
  EXPECT_OK(cache.Load("module"));
}

TEST(WhatWasUsedLongestAgoGoesFirst) {
  const CacheFolder folder;
  ASSERT_OK_AND_ASSIGN(const DiskCache cache, DiskCache::Open(folder.path(), "p", 3000));
  const std::string kilobyte(1000, 'x');
  ASSERT_OK(cache.Store("a", kilobyte));
  const fs::path a = folder.files()[0];
  ASSERT_OK(cache.Store("b", kilobyte));
  const auto now = fs::file_time_type::clock::now();
  for (const fs::path& path : folder.files()) {
    fs::last_write_time(path, now - std::chrono::hours(path == a ? 2 : 1));
  }
  ASSERT_OK(cache.Load("a"));  // used again
  ASSERT_OK(cache.Store("c", kilobyte));
  EXPECT_OK(cache.Load("a"));
  EXPECT(!cache.Load("b").ok());
  EXPECT_OK(cache.Load("c"));
}

TEST(AFolderOthersCanWriteIsRefused) {
  const CacheFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  const Status status = DiskCache::Open(folder.path(), "p").status();
  EXPECT(status.code() == Code::kPermissionDenied);
  EXPECT_HAS(status.ToString(), "chmod 700");
  EXPECT(DiskCache::Open("/etc/passwd", "p").status().code() == Code::kInvalidArgument);
}

TEST(TheProcessorIsDescribed) { EXPECT(!ProcessorText().empty()); }

TEST(OneAtATimeMakesWhatIsMissing) {
  const CacheFolder folder;
  ASSERT_OK_AND_ASSIGN(const DiskCache cache, DiskCache::Open(folder.path(), "plugin 1"));
  std::atomic<int> inside{0}, made{0};
  std::atomic<bool> alone{true};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const DiskCache::Turn turn = cache.TakeTurn("module");
      if (inside.fetch_add(1) != 0) alone = false;
      if (!cache.Load("module").ok()) {
        ++made;
        EXPECT_OK(cache.Store("module", "executable"));
      }
      --inside;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(alone);
  EXPECT_EQ(made.load(), 1);
}

// A process that takes the turn and then stops, as Ctrl-Z would have it.
class StoppedHolder {
 public:
  StoppedHolder(const DiskCache& cache, const char* content) : pid_(fork()) {
    if (pid_ == 0) {
      const DiskCache::Turn turn = cache.TakeTurn(content);
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
  }
  ~StoppedHolder() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_;
};

TEST(NobodyWaitsForAProcessThatIsStopped) {
  const CacheFolder folder;
  ASSERT_OK_AND_ASSIGN(const DiskCache cache, DiskCache::Open(folder.path(), "plugin 1"));
  StoppedHolder holder(cache, "module");
  EXPECT(cache.TakeTurn("another").held());
  EXPECT(!cache.TakeTurn("module").held());
  holder.Kill();
  EXPECT(cache.TakeTurn("module").held());
}

}  // namespace
}  // namespace pathways::worker
