#include "csrc/capture/recorder.h"

#include <cstring>
#include <mutex>
#include <utility>

#include "csrc/base/thread_annotations.h"

namespace pathways::capture {
namespace {

struct List {
  std::mutex mutex;
  Recording events PW_GUARDED_BY(mutex);
};

List& TheList() {
  static List* const list = new List;  // leaked: threads of the caller may outlive static destructors
  return *list;
}

}  // namespace

std::atomic<bool> Recorder::active_{false};
std::atomic<std::thread::id> Recorder::thread_{};

Status Recorder::Start() {
  List& list = TheList();
  std::lock_guard lock(list.mutex);
  if (active_.exchange(true)) {
    return FailedPrecondition("another step is being captured in this process; captures take turns");
  }
  thread_ = std::this_thread::get_id();
  list.events.clear();
  return OkStatus();
}

Recording Recorder::Stop() {
  List& list = TheList();
  std::lock_guard lock(list.mutex);
  active_ = false;
  return std::exchange(list.events, {});
}

void Recorder::Note(RecordedEvent event) {
  List& list = TheList();
  std::lock_guard lock(list.mutex);
  if (active_) list.events.push_back(std::move(event));
}

// Four lanes of multiply and shift, so that it keeps up with memory.
uint64_t Digest(const void* bytes, size_t size) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  uint64_t lanes[4] = {kMultiplier, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5};
  const auto mix = [](uint64_t lane, uint64_t word) {
    lane = (lane ^ word) * kMultiplier;
    return lane ^ (lane >> 29);
  };
  uint64_t sum = mix(kMultiplier, size);
  const char* at = static_cast<const char*>(bytes);
  for (; size >= 32; size -= 32, at += 32) {
    uint64_t words[4];
    std::memcpy(words, at, 32);
    for (int i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], words[i]);
  }
  for (int i = 0; size > 0; ++i) {
    uint64_t word = 0;
    const size_t part = size < 8 ? size : 8;
    std::memcpy(&word, at, part);
    lanes[i] = mix(lanes[i], word);
    at += part;
    size -= part;
  }
  for (uint64_t lane : lanes) sum = mix(sum + kMultiplier, lane);
  return sum;
}

}  // namespace pathways::capture
