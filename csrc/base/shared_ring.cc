#include "csrc/base/shared_ring.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

namespace pathways {
namespace {

constexpr std::chrono::microseconds kLookForRoom{100};

}  // namespace

Result<std::unique_ptr<SharedRing>> SharedRing::Make(size_t capacity, std::chrono::milliseconds patience) {
  void* memory = ::mmap(nullptr, sizeof(Shared) + capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted("cannot map " + std::to_string(capacity >> 20) +
                             " MiB to share with another process: " + std::strerror(errno));
  }
  const int wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) {
    const std::string reason = std::strerror(errno);
    ::munmap(memory, sizeof(Shared) + capacity);
    return ResourceExhausted("cannot make an eventfd: " + reason);
  }
  return std::unique_ptr<SharedRing>(new SharedRing(new (memory) Shared{}, capacity, patience, wake_fd));
}

SharedRing::~SharedRing() {
  ::munmap(shared_, sizeof(Shared) + capacity_);
  ::close(wake_fd_);
}

bool SharedRing::Write(std::span<const std::string_view> pieces) {
  if (dropped() || left()) return false;
  uint64_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  left_to_wait_ = patience_ * (1 + size / capacity_);
  if (!Append({reinterpret_cast<const char*>(&size), sizeof size})) return false;
  for (const std::string_view piece : pieces) {
    if (!Append(piece)) return false;
  }
  shared_->written.store(writing_, std::memory_order_release);
  // Rarely: who reads has a process of its own to wake up, which takes longer than to write a record.
  if (writing_ - shared_->read.load(std::memory_order_relaxed) >= capacity_ / 8) Wake();
  return true;
}

bool SharedRing::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t room = capacity_ - (writing_ - shared_->read.load(std::memory_order_acquire));
    if (room == 0) {
      if (!AwaitRoom()) return false;
      continue;
    }
    const size_t count = std::min(room, bytes.size());
    CopyIn(bytes.substr(0, count));
    bytes.remove_prefix(count);
  }
  return true;
}

bool SharedRing::AwaitRoom() {
  // A part of a record, which the reader puts aside: a record may be larger than the ring.
  shared_->written.store(writing_, std::memory_order_release);
  Wake();
  const auto begun = std::chrono::steady_clock::now();
  while (capacity_ == writing_ - shared_->read.load(std::memory_order_acquire)) {
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (left() || waited >= left_to_wait_) {
      shared_->dropped.store(1, std::memory_order_release);
      return false;
    }
    std::this_thread::sleep_for(kLookForRoom);
  }
  left_to_wait_ -= std::chrono::steady_clock::now() - begun;
  return true;
}

void SharedRing::CopyIn(std::string_view bytes) {
  const size_t at = writing_ % capacity_;
  const size_t first = std::min(bytes.size(), capacity_ - at);
  std::memcpy(bytes_ + at, bytes.data(), first);
  std::memcpy(bytes_, bytes.data() + first, bytes.size() - first);
  writing_ += bytes.size();
}

void SharedRing::Wake() {
  if (shared_->sleeping.exchange(0) == 0) return;
  const uint64_t one = 1;
  // Only fails when the counter is full, and then the reader wakes anyway.
  [[maybe_unused]] const ssize_t done = ::write(wake_fd_, &one, sizeof one);
}

size_t SharedRing::CopyOut(char* to, size_t most) {
  const uint64_t read = shared_->read.load(std::memory_order_relaxed);
  const size_t count = std::min<uint64_t>(most, shared_->written.load(std::memory_order_acquire) - read);
  const size_t at = read % capacity_;
  const size_t first = std::min(count, capacity_ - at);
  std::memcpy(to, bytes_ + at, first);
  std::memcpy(to + first, bytes_, count - first);
  shared_->read.store(read + count, std::memory_order_release);
  return count;
}

bool SharedRing::Read(std::string* record) {
  for (;;) {
    const bool has_size = wanted_ != 0;
    const size_t goal = has_size ? wanted_ - 1 : sizeof(uint64_t);
    if (partial_.size() < goal) {
      // In steps: a length is only believed as far as there are bytes.
      const size_t before = partial_.size();
      partial_.resize(before + std::min(goal - before, capacity_));
      const size_t count = CopyOut(partial_.data() + before, partial_.size() - before);
      partial_.resize(before + count);
      if (count == 0) return false;
      if (partial_.size() < goal) continue;
    }
    if (has_size) {
      record->swap(partial_);
      partial_.clear();
      wanted_ = 0;
      return true;
    }
    uint64_t size = 0;
    std::memcpy(&size, partial_.data(), sizeof size);
    wanted_ = size + 1;
    partial_.clear();
  }
}

bool SharedRing::PrepareToSleep() {
  shared_->sleeping.store(1);
  if (shared_->written.load() == shared_->read.load(std::memory_order_relaxed)) return true;
  shared_->sleeping.store(0);
  return false;
}

void SharedRing::Woke() {
  shared_->sleeping.store(0);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t done = ::read(wake_fd_, &count, sizeof count);
}

}  // namespace pathways
