#include "csrc/worker/disk_cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace pathways::worker {
namespace {

namespace fs = std::filesystem;

// A file: magic, sizes of key and executable, checksum of both, key, executable. Numbers as this machine writes them;
// another's are refused with the rest of `maker`.
constexpr char kMagic[8] = {'P', 'W', 'E', 'X', 'E', 'C', '0', '1'};
struct FileHead {
  char magic[8];
  uint64_t key_size;
  uint64_t executable_size;
  uint64_t checksum;
};
constexpr std::string_view kSuffix = ".pwx";

// FNV-1a.
uint64_t Fold(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

// Which process holds a turn stands in the file, at a place that a few contents may share.
constexpr uint64_t kHolders = 4096;
constexpr uint64_t kFirstTurn = uint64_t{1} << 60;
constexpr auto kTurnWait = std::chrono::minutes(10);
constexpr auto kTurnPoll = std::chrono::milliseconds(20);

// Whether a process of this machine may go on by itself: it is there, and neither stopped nor ended.
bool IsAlive(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         std::string_view("TtZX").find(text[name_end + 2]) == std::string_view::npos;
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Result<DiskCache> DiskCache::Open(const std::string& folder, std::string maker, uint64_t max_bytes) {
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Unavailable("expected to make the cache folder '" + folder + "': " + std::strerror(errno));
  }
  struct stat about{};
  if (stat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) {
    return InvalidArgument("expected a folder for compiled programs, got '" + folder + "'");
  }
  if (about.st_uid != geteuid() || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(Code::kPermissionDenied, "expected a cache folder that only this user can write, got '" + folder +
                                               "'; programs in it would run as ours: chmod 700, or name another");
  }
  return DiskCache(folder, std::move(maker), max_bytes);
}

fs::path DiskCache::PathOf(const std::string& key) const {
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(Fold(key)));
  return folder_ / (name + std::string(kSuffix));
}

DiskCache::Turn::~Turn() {
  if (fd_ >= 0) close(fd_);
}

DiskCache::Turn DiskCache::TakeTurn(std::string_view content) const {
  const uint64_t hash = Fold(content, Fold(maker_));
  const int fd = open((folder_ / "turns").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Turn(-1);
  Turn turn(fd);
  // One byte far behind the holders is locked, by the open file and not by the process: its threads take turns, too.
  struct flock one{};
  one.l_type = F_WRLCK;
  one.l_whence = SEEK_SET;
  one.l_start = static_cast<off_t>(kFirstTurn + (hash >> 8));
  one.l_len = 1;
  const auto holder = static_cast<off_t>(hash % kHolders * sizeof(int64_t));
  const auto until = std::chrono::steady_clock::now() + kTurnWait;
  int idle = 0;  // how often in a row its holder did not run; once may be one that has just come and not yet signed
  while (fcntl(fd, F_OFD_SETLK, &one) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EACCES) return Turn(-1);
    int64_t pid = 0;
    const bool known = pread(fd, &pid, sizeof pid, holder) == sizeof pid && pid != 0;
    idle = known && !IsAlive(pid) ? idle + 1 : 0;
    if (idle > 1 || std::chrono::steady_clock::now() >= until) return Turn(-1);
    std::this_thread::sleep_for(kTurnPoll);
  }
  const int64_t own = getpid();
  // When that fails, nobody knows who holds it, and others wait for the ten minutes.
  [[maybe_unused]] const ssize_t written = pwrite(fd, &own, sizeof own, holder);
  return turn;
}

Result<std::string> DiskCache::Load(std::string_view content) const {
  const std::string key = maker_ + std::string(content);
  const fs::path path = PathOf(key);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  FileHead head;
  if (!file.is_open()) return NotFound("it is not in the cache");
  const Status damaged = DataLoss("'" + path.string() + "' is damaged, or another version wrote it");
  if (bytes.size() < sizeof head) return damaged;
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::string_view rest = std::string_view(bytes).substr(sizeof head);
  const bool whole = std::memcmp(head.magic, kMagic, sizeof kMagic) == 0 && rest.size() >= head.key_size &&
                     head.executable_size == rest.size() - head.key_size && head.checksum == Fold(rest);
  if (!whole) return damaged;
  if (rest.substr(0, head.key_size) != key) return NotFound("what is in the cache has the same hash, and is another");
  std::error_code ignored;  // only the order of pruning suffers
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return std::string(rest.substr(key.size()));
}

Status DiskCache::Store(std::string_view content, std::string_view executable) const {
  const std::string key = maker_ + std::string(content);
  FileHead head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.key_size = key.size();
  head.executable_size = executable.size();
  head.checksum = Fold(executable, Fold(key));
  std::string draft = (folder_ / "draft-XXXXXX").string();
  const int fd = mkstemp(draft.data());
  if (fd < 0)
    return Unavailable("cannot write to the cache folder '" + folder_.string() + "': " + std::strerror(errno));
  const bool written = WriteAll(fd, {reinterpret_cast<const char*>(&head), sizeof head}) && WriteAll(fd, key) &&
                       WriteAll(fd, executable);
  const bool closed = close(fd) == 0;
  // A reader sees the old file or the new one, whole.
  if (!written || !closed || std::rename(draft.c_str(), PathOf(key).c_str()) != 0) {
    const std::string why = std::strerror(errno);
    unlink(draft.c_str());
    return Unavailable("cannot write to the cache folder '" + folder_.string() + "': " + why);
  }
  Prune();
  return OkStatus();
}

void DiskCache::Prune() const {
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code error;  // files may go meanwhile: other workers prune, too
  for (const fs::directory_entry& item : fs::directory_iterator(folder_, error)) {
    if (item.path().extension() != kSuffix) continue;
    Entry entry{item.last_write_time(error), 0, item.path()};
    if (error) continue;
    entry.bytes = item.file_size(error);
    if (error) continue;
    total += entry.bytes;
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= max_bytes_) return;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
}

std::string ProcessorText() {
  std::ifstream file("/proc/cpuinfo");
  std::string text, line;
  // The first processor's; they are alike.
  while (std::getline(file, line) && !line.empty()) {
    if (line.starts_with("model name") || line.starts_with("flags") || line.starts_with("Features"))
      text += line + '\n';
  }
  return text;
}

std::string DriverText() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace pathways::worker
