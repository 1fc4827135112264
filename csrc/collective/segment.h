// Segment: a named piece of shared memory under a name that its peers can work out, and Bell, the word in it that a
// thread sleeps on.
//
// Ownership: the creator holds a file lock on the segment for as long as it lives, and unlinks it at the end; a file
//            whose lock is free is a leftover, which openers ignore and creators replace. Names are of the form that
//            transport::CleanUp and CleanUpDead remove.
// Threads:   a Segment belongs to one thread at a time; a Bell may be used from any thread of any process.
// Trust:     the other side is a process of the same user; sizes found in shared memory are still checked.
#ifndef PTPATHWAYS_COLLECTIVE_SEGMENT_H_
#define PTPATHWAYS_COLLECTIVE_SEGMENT_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "csrc/base/status.h"

namespace pathways::collective {

// Stands in the names of a host's segments where those of transport::SegmentPool have a session: above any of them.
constexpr uint64_t SegmentOwner(uint32_t host) { return uint64_t{1'000'000'000'000} + host; }

class Segment {
 public:
  // RESOURCE_EXHAUSTED: /dev/shm cannot give so much memory. ALREADY_EXISTS: a living process has one of this name.
  static Result<std::unique_ptr<Segment>> Create(const std::string& name, size_t bytes);
  // NOT_FOUND: there is none, or it is not ready, or its creator is gone.
  static Result<std::unique_ptr<Segment>> Open(const std::string& name);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // The creator says that others may look.
  void SetReady();
  // After the segment's own first cache lines.
  std::byte* data() const { return base_ + kHeaderBytes; }
  size_t size() const { return bytes_ - kHeaderBytes; }

 private:
  static constexpr size_t kHeaderBytes = 64;
  Segment() = default;
  Status Map(size_t bytes);

  std::string path_;
  int fd_ = -1;  // kept for its lock
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  int64_t owner_ = 0;  // pid of the creator; 0 when opened
};

// What a thread sleeps on until somebody in this or another process has something for it.
class alignas(64) Bell {
 public:
  void Ring() {
    // Whoever rings has written what the sleeper looks for. Both change waiting_, in some order: either this sees the
    // sleeper, or the sleeper's look after Arm sees what was written.
    if (waiting_.fetch_add(0, std::memory_order_acq_rel) != 0) Wake();
  }
  // Between Arm and Disarm rings are not lost: look again after Arm, then Sleep with what it returned.
  uint32_t Arm();
  void Sleep(uint32_t armed, std::chrono::nanoseconds timeout);
  void Disarm();

 private:
  void Wake();
  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> waiting_{0};
};

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_SEGMENT_H_
