#include "csrc/transport/shm.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

namespace pathways::transport {
namespace {

constexpr std::string_view kShmDirectory = "/dev/shm";
constexpr size_t kClusterNameBytesMax = 64;
constexpr int kNameAttempts = 1000;
// After a failed growth, do not ask a full /dev/shm again before this has passed.
constexpr auto kGrowthPause = std::chrono::seconds(1);

std::string PathOf(std::string_view name) { return std::string(kShmDirectory) + std::string(name); }

std::string SystemText(int error) { return std::strerror(error); }

bool AllDigits(std::string_view text) {
  return !text.empty() && text.size() <= 20 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The <cluster> of "/ptpathways-<cluster>-<owner>-<n>", or nothing when `name` is not of that form.
std::optional<std::string_view> ClusterOf(std::string_view name) {
  if (!name.starts_with(kSegmentPrefix)) return std::nullopt;
  std::string_view rest = name.substr(kSegmentPrefix.size());
  for (int field = 0; field < 2; ++field) {
    const size_t dash = rest.rfind('-');
    if (dash == std::string_view::npos || !AllDigits(rest.substr(dash + 1))) return std::nullopt;
    rest = rest.substr(0, dash);
  }
  if (!CheckClusterName(rest).ok()) return std::nullopt;
  return rest;
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  int Take() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Calls `remove` with cluster, owner and an open descriptor of each segment of this user; counts what was unlinked.
template <typename Predicate>
Result<int> RemoveSegments(Predicate remove) {
  DIR* directory = ::opendir(std::string(kShmDirectory).c_str());
  if (directory == nullptr) return Unavailable("cannot list /dev/shm: " + SystemText(errno));
  int removed = 0;
  while (const dirent* item = ::readdir(directory)) {
    const std::string name = std::string("/") + item->d_name;
    const auto cluster = ClusterOf(name);
    if (!cluster) continue;
    File file(::open(PathOf(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file.fd() < 0 || !remove(*cluster, SegmentOwner(name), file.fd())) continue;
    if (::unlink(PathOf(name).c_str()) == 0) ++removed;
  }
  ::closedir(directory);
  return removed;
}

}  // namespace

Status CheckClusterName(std::string_view cluster) {
  const bool good = !cluster.empty() && cluster.size() <= kClusterNameBytesMax &&
                    std::all_of(cluster.begin(), cluster.end(), [](char c) {
                      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                             c == '_' || c == '-';
                    });
  if (good) return OkStatus();
  return InvalidArgument("a cluster's name must be 1 to " + std::to_string(kClusterNameBytesMax) +
                         " letters, digits, '.', '_' or '-', got '" + std::string(cluster) + "'");
}

std::string MachineToken() {
  struct stat shm{};
  if (::stat(std::string(kShmDirectory).c_str(), &shm) != 0 || !S_ISDIR(shm.st_mode)) return "";
  if (::access(std::string(kShmDirectory).c_str(), W_OK | X_OK) != 0) return "";
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  if (!std::getline(file, boot_id) || boot_id.empty()) return "";
  const char* name = std::getenv("PTPATHWAYS_MACHINE");
  return boot_id + ":" + std::to_string(shm.st_dev) + ":" + std::to_string(shm.st_ino) + ":" +
         std::to_string(::geteuid()) + (name != nullptr && *name != '\0' ? std::string(":") + name : "");
}

uint64_t SegmentOwner(std::string_view name) {
  if (!ClusterOf(name)) return 0;
  name = name.substr(0, name.rfind('-'));
  name = name.substr(name.rfind('-') + 1);
  uint64_t owner = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), owner);
  return parsed.ec == std::errc() ? owner : 0;
}

Result<int> CleanUp(std::string_view cluster) {
  PW_RETURN_IF_ERROR(CheckClusterName(cluster));
  return RemoveSegments([&](std::string_view of, uint64_t, int) { return of == cluster; });
}

Result<int> CleanUpOwner(std::string_view cluster, uint64_t owner) {
  PW_RETURN_IF_ERROR(CheckClusterName(cluster));
  return RemoveSegments([&](std::string_view of, uint64_t by, int) { return of == cluster && by == owner; });
}

Result<int> CleanUpDead() {
  // The owner's lock ends with the owner, in whichever pid namespace it lived. It is held here until after the unlink,
  // so that an owner which is just creating the file notices.
  return RemoveSegments([](std::string_view, uint64_t, int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0; });
}

struct SegmentPool::Segment {
  std::string name;
  int fd = -1;  // kept for its lock
  std::byte* data = nullptr;
  size_t size = 0;
  pid_t owner = 0;

  ~Segment() {
    if (data != nullptr) ::munmap(data, size);
    // A forked child shares the description, and with it the lock; the name is its parent's to remove.
    if (fd >= 0 && owner == ::getpid()) ::unlink(PathOf(name).c_str());
    if (fd >= 0) ::close(fd);
  }
};

SegmentPool::SegmentPool(SegmentPoolOptions options) : options_(std::move(options)) {
  options_.chunk_bytes = std::max<size_t>(options_.chunk_bytes, 4096);
  grow_error_ = CheckClusterName(options_.cluster);
}

SegmentPool::~SegmentPool() = default;

Result<ShmChunk> SegmentPool::TryAcquire() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    Status grown = Grow();
    if (!grown.ok()) {
      if (segments_.empty()) return Unavailable(std::string(grown.message()));
      starved_ = true;
      return ResourceExhausted("all " + std::to_string(in_use_) + " chunks of shared memory are in use");
    }
  }
  ShmChunk chunk = free_.back();
  free_.pop_back();
  ++in_use_;
  return chunk;
}

void SegmentPool::Release(const ShmChunk& chunk) {
  std::function<void()> tell;
  {
    std::lock_guard lock(mutex_);
    free_.push_back(chunk);
    --in_use_;
    if (std::exchange(starved_, false)) tell = on_release_;
  }
  if (tell) tell();
}

void SegmentPool::OnRelease(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  on_release_ = std::move(callback);
}

size_t SegmentPool::chunks_in_use() const {
  std::lock_guard lock(mutex_);
  return in_use_;
}

size_t SegmentPool::bytes_allocated() const {
  std::lock_guard lock(mutex_);
  return allocated_;
}

Status SegmentPool::Grow() {
  PW_RETURN_IF_ERROR(CheckClusterName(options_.cluster));
  const auto now = std::chrono::steady_clock::now();
  if (!grow_error_.ok() && now < grow_again_) return grow_error_;
  const size_t left = options_.total_bytes - std::min(options_.total_bytes, allocated_);
  const size_t chunks =
      std::min(std::max<size_t>(1, options_.segment_bytes / options_.chunk_bytes), left / options_.chunk_bytes);
  if (chunks == 0) {
    return ResourceExhausted("the pool's bound of " + std::to_string(options_.total_bytes) + " bytes is reached");
  }
  auto segment = std::make_unique<Segment>();
  grow_error_ = CreateSegment(chunks * options_.chunk_bytes, segment.get());
  if (!grow_error_.ok()) {
    grow_again_ = now + kGrowthPause;
    return grow_error_;
  }
  // Pushed backwards, so that the stack hands out ascending addresses first.
  for (size_t i = chunks; i-- > 0;) {
    const uint64_t offset = i * options_.chunk_bytes;
    free_.push_back({segment->name, offset, segment->data + offset, options_.chunk_bytes});
  }
  allocated_ += segment->size;
  segments_.push_back(std::move(segment));
  return OkStatus();
}

Status SegmentPool::CreateSegment(size_t size, Segment* segment) {
  static std::atomic<uint64_t> next_number{0};
  const pid_t pid = ::getpid();
  const std::string prefix = std::string(kSegmentPrefix) + options_.cluster + "-" +
                             std::to_string(options_.owner != 0 ? options_.owner : static_cast<uint64_t>(pid)) + "-";
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    const std::string name = prefix + std::to_string(next_number.fetch_add(1));
    File file(::open(PathOf(name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.fd() < 0) {
      if (errno == EEXIST) continue;  // a leftover of a process that had our pid
      return Unavailable("cannot create " + PathOf(name) + ": " + SystemText(errno));
    }
    // Between open and flock a CleanUpDead may have taken the file for a leftover: then it is locked or unlinked.
    struct stat status{};
    if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0 || ::fstat(file.fd(), &status) != 0 || status.st_nlink == 0)
      continue;
    segment->name = name;
    segment->owner = pid;
    segment->fd = file.Take();  // from here on the segment's destructor unlinks
    segment->size = size;
    // Reserves the pages now: writing to a page that /dev/shm cannot provide would be a SIGBUS later.
    if (const int error = ::posix_fallocate(segment->fd, 0, static_cast<off_t>(size)); error != 0) {
      return Unavailable("cannot reserve " + std::to_string(size) + " bytes of shared memory in /dev/shm: " +
                         SystemText(error) + "; enlarge it (docker: --shm-size) or transfers stay on sockets");
    }
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, segment->fd, 0);
    if (data == MAP_FAILED) return Unavailable("cannot map " + PathOf(name) + ": " + SystemText(errno));
    segment->data = static_cast<std::byte*>(data);
    return OkStatus();
  }
  return Unavailable("no free segment name under " + PathOf(prefix) + "; remove leftovers with CleanUpDead");
}

SegmentMapping::~SegmentMapping() {
  if (pinner_) pinner_->Unpin(data_);
  ::munmap(data_, size_);
}

SegmentMap::SegmentMap(std::string cluster, std::shared_ptr<Pinner> pinner)
    : cluster_(std::move(cluster)), pinner_(std::move(pinner)) {}

Result<SegmentMap::View> SegmentMap::Open(std::string_view name, uint64_t offset, uint64_t size) {
  PW_ASSIGN_OR_RETURN(std::shared_ptr<const SegmentMapping> mapping, Map(name));
  const std::span<const std::byte> all = mapping->bytes();
  if (offset > all.size() || size > all.size() - offset) {
    return InvalidArgument("a piece must lie inside its segment of " + std::to_string(all.size()) +
                           " bytes, got offset " + std::to_string(offset) + " and size " + std::to_string(size));
  }
  return View{all.subspan(offset, size), std::move(mapping)};
}

Result<std::shared_ptr<const SegmentMapping>> SegmentMap::Map(std::string_view name) {
  std::lock_guard lock(mutex_);
  if (auto at = mappings_.find(std::string(name)); at != mappings_.end()) return at->second;
  const auto cluster = ClusterOf(name);
  if (!cluster || *cluster != cluster_) {
    return InvalidArgument("a segment of cluster '" + cluster_ + "' is required, got a name of " +
                           std::to_string(name.size()) + " bytes that is none");
  }
  // Drivers pin only memory that this process might write, although nobody does.
  const bool pinned = pinner_ != nullptr;
  File file(::open(PathOf(name).c_str(), (pinned ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW));
  if (file.fd() < 0) {
    return NotFound("segment " + std::string(name) + " cannot be opened: " + SystemText(errno) +
                    "; its owner is gone or does not share this machine's /dev/shm");
  }
  struct stat status{};
  if (::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0 ||
      status.st_uid != ::geteuid()) {
    return InvalidArgument("segment " + std::string(name) + " must be a non-empty file of this user, and is not");
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, pinned ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file.fd(), 0);
  if (data == MAP_FAILED) return Unavailable("cannot map segment " + std::string(name) + ": " + SystemText(errno));
  const bool took = pinned && pinner_->Pin(data, size);
  auto mapping = std::make_shared<const SegmentMapping>(static_cast<std::byte*>(data), size, took ? pinner_ : nullptr);
  mappings_.emplace(std::string(name), mapping);
  return mapping;
}

void SegmentMap::Forget(std::string_view name) {
  std::shared_ptr<const SegmentMapping> dropped;  // unmapped after the lock
  std::lock_guard lock(mutex_);
  if (auto at = mappings_.find(std::string(name)); at != mappings_.end()) {
    dropped = std::move(at->second);
    mappings_.erase(at);
  }
}

size_t SegmentMap::size() const {
  std::lock_guard lock(mutex_);
  return mappings_.size();
}

}  // namespace pathways::transport
