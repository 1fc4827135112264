// Recorder: what callers of the plugin do while a step is being captured, in order.
//
// One recording at a time per process. What is recorded happens all the same: a recorded step is a real one.
//
// Ownership: a recording holds the values that it names, so that they can still be told apart and used as constants.
// Threads:   Note from any thread; Start and Stop by whoever captures. Locks: the recorder's own, for the list.
#ifndef PTPATHWAYS_CAPTURE_RECORDER_H_
#define PTPATHWAYS_CAPTURE_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/compiled/program.h"
#include "csrc/values/value.h"

namespace pathways::capture {

// A computation on one logical device, and what it gave.
struct RecordedRun {
  std::shared_ptr<const compiled::Program> program;
  std::shared_ptr<client::Function> function;  // that ran; on a slice, the program for how the arguments lie
  PJRT_Device* device = nullptr;
  std::vector<values::ValuePtr> arguments;
  std::vector<values::ValuePtr> results;
  std::vector<uint32_t> donated;  // positions given up
};
// A computation, or a part of one, over several logical devices: not to be run again by itself.
struct RecordedGang {
  std::string what;
};
struct RecordedUpload {
  values::ValuePtr value;
  uint64_t digest = 0;  // of its bytes
};
// A value that was moved to other devices, or laid another way.
struct RecordedCopy {
  values::ValuePtr source;
  values::ValuePtr result;
};
// Bytes that the client asked for.
struct RecordedFetch {
  values::ValuePtr value;
  bool own = false;    // by the thread that records
  std::string source;  // the user's line then; empty if another thread asked
};
using RecordedEvent = std::variant<RecordedRun, RecordedGang, RecordedUpload, RecordedCopy, RecordedFetch>;
using Recording = std::vector<RecordedEvent>;

class Recorder {
 public:
  static bool active() { return active_.load(std::memory_order_relaxed); }
  // Whether the calling thread began the recording.
  static bool own() { return std::this_thread::get_id() == thread_.load(std::memory_order_relaxed); }
  // FAILED_PRECONDITION: another recording is under way.
  static Status Start();
  // What was recorded since Start; empty without one.
  static Recording Stop();
  static void Note(RecordedEvent event);

 private:
  static std::atomic<bool> active_;
  static std::atomic<std::thread::id> thread_;
};

// A number that differs, as good as always, for different contents.
uint64_t Digest(const void* bytes, size_t size);

}  // namespace pathways::capture

#endif  // PTPATHWAYS_CAPTURE_RECORDER_H_
