#include "csrc/collective/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>

namespace pathways::collective {
namespace {

constexpr uint64_t kReadyMagic = 0x3153454e414c5750;  // "PWLANES1" in memory order
constexpr int kCreateAttempts = 100;

std::atomic<uint64_t>& ReadyWord(std::byte* base) { return *reinterpret_cast<std::atomic<uint64_t>*>(base); }

std::string SystemText(int error) { return std::strerror(error); }

// No private futexes: the word may be in memory of several processes.
void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, std::chrono::nanoseconds timeout) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(timeout.count() / 1000000000);
  limit.tv_nsec = static_cast<long>(timeout.count() % 1000000000);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Segment::~Segment() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
  // A forked child shares the description, and with it the lock; the name is its parent's to remove.
  if (fd_ >= 0 && owner_ == ::getpid()) ::unlink(path_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

Status Segment::Map(size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (base == MAP_FAILED) return ResourceExhausted("cannot map " + path_ + ": " + SystemText(errno));
  base_ = static_cast<std::byte*>(base);
  bytes_ = bytes;
  return OkStatus();
}

Result<std::unique_ptr<Segment>> Segment::Create(const std::string& name, size_t bytes) {
  const std::string path = "/dev/shm" + name;
  bytes += kHeaderBytes;
  for (int attempt = 0; attempt < kCreateAttempts; ++attempt) {
    std::unique_ptr<Segment> segment(new Segment());
    segment->path_ = path;
    segment->fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (segment->fd_ < 0 && errno != EEXIST) {
      return ResourceExhausted("cannot create " + path + ": " + SystemText(errno));
    }
    if (segment->fd_ < 0) {
      // Somebody's; a free lock says that nobody has it any more. An opener may hold it for a moment.
      segment->fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
      if (segment->fd_ >= 0 && ::flock(segment->fd_, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
      std::this_thread::yield();
      continue;
    }
    struct stat status{};
    if (::flock(segment->fd_, LOCK_EX | LOCK_NB) != 0 || ::fstat(segment->fd_, &status) != 0 || status.st_nlink == 0) {
      // A clean-up, or an opener that found the lock free, was between the two calls.
      if (segment->fd_ >= 0 && status.st_nlink != 0) ::unlink(path.c_str());
      continue;
    }
    segment->owner_ = ::getpid();  // from here on the destructor unlinks
    if (const int error = ::posix_fallocate(segment->fd_, 0, static_cast<off_t>(bytes)); error != 0) {
      return ResourceExhausted("cannot reserve " + std::to_string(bytes) + " bytes of shared memory in /dev/shm: " +
                               SystemText(error) + "; enlarge it (docker: --shm-size)");
    }
    PW_RETURN_IF_ERROR(segment->Map(bytes));
    return segment;
  }
  return Status(Code::kAlreadyExists, path +
                                          " must not belong to another living process, and does; two hosts of one "
                                          "cluster have the same number");
}

Result<std::unique_ptr<Segment>> Segment::Open(const std::string& name) {
  std::unique_ptr<Segment> segment(new Segment());
  segment->path_ = "/dev/shm" + name;
  segment->fd_ = ::open(segment->path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (segment->fd_ < 0) return NotFound("there is no " + segment->path_ + ": " + SystemText(errno));
  struct stat status{};
  if (::fstat(segment->fd_, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid() ||
      static_cast<size_t>(status.st_size) <= kHeaderBytes) {
    return NotFound(segment->path_ + " is not ready");
  }
  if (::flock(segment->fd_, LOCK_SH | LOCK_NB) == 0) {
    ::flock(segment->fd_, LOCK_UN);
    return NotFound(segment->path_ + " is a leftover");
  }
  PW_RETURN_IF_ERROR(segment->Map(static_cast<size_t>(status.st_size)));
  if (ReadyWord(segment->base_).load(std::memory_order_acquire) != kReadyMagic) {
    return NotFound(segment->path_ + " is not ready");
  }
  return segment;
}

void Segment::SetReady() { ReadyWord(base_).store(kReadyMagic, std::memory_order_release); }

uint32_t Bell::Arm() {
  const uint32_t armed = count_.load(std::memory_order_acquire);
  waiting_.fetch_add(1, std::memory_order_acq_rel);
  return armed;
}

void Bell::Sleep(uint32_t armed, std::chrono::nanoseconds timeout) { FutexWait(&count_, armed, timeout); }

void Bell::Disarm() { waiting_.fetch_sub(1, std::memory_order_relaxed); }

void Bell::Wake() {
  count_.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(&count_);
}

}  // namespace pathways::collective
