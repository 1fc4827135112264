// EngineWatch: whether the engine's thread takes its turns. A pure state machine: time in, decision out.
//
// Other threads send a worker's heartbeats, so a process whose engine hangs seems to live, and whoever needs it would
// wait for ever. So the engine is given a task now and then. While it has not run, the engine is at something else,
// which may be right: XLA runs small computations on the thread that enqueues them, and one of them may be long. But a
// thread that computes uses the processor. One that has used none of it for the whole limit waits inside the plugin or
// a custom call, and nothing that this process knows will end that.
//
// Ownership: the worker's. Threads: Look: one. Turned: any. Locks: none.
#ifndef PTPATHWAYS_WORKER_ENGINE_WATCH_H_
#define PTPATHWAYS_WORKER_ENGINE_WATCH_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace pathways::worker {

class EngineWatch {
 public:
  enum class Decision {
    kWait,   // for the task, which has not run yet
    kAsk,    // give the engine a task that calls Turned
    kHangs,  // still_ms() says for how long
  };

  explicit EngineWatch(int64_t limit_ms) : limit_ms_(limit_ms) {}

  // The engine has run its task.
  void Turned() { turned_ = true; }

  // `cpu_ms`: how long the engine's thread has computed since it started.
  Decision Look(int64_t now_ms, int64_t cpu_ms) {
    // A process that was itself stopped must not blame its engine.
    const bool stopped = now_ms > std::exchange(looked_ms_, now_ms) + limit_ms_ / 2;
    if (!asked_ || turned_.exchange(false)) {
      asked_ = true;
      Begin(now_ms, cpu_ms);
      return Decision::kAsk;
    }
    if (stopped || (cpu_ms - cpu_ms_) * kComputesShare >= now_ms - since_ms_ + 1) Begin(now_ms, cpu_ms);
    return now_ms - since_ms_ > limit_ms_ ? Decision::kHangs : Decision::kWait;
  }
  int64_t still_ms() const { return looked_ms_ - since_ms_; }

 private:
  // Who computes has used at least this part of the time, one in so many.
  static constexpr int64_t kComputesShare = 100;

  void Begin(int64_t now_ms, int64_t cpu_ms) {
    since_ms_ = now_ms;
    cpu_ms_ = cpu_ms;
  }

  const int64_t limit_ms_;
  std::atomic<bool> turned_{false};
  bool asked_ = false;
  int64_t looked_ms_ = 0, since_ms_ = 0, cpu_ms_ = 0;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ENGINE_WATCH_H_
