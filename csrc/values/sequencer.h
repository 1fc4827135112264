// Sequencer: keeps each device's work in submission order while replicas of a gang arrive one device at a time.
//
// Callers that run one replica per thread execute a computation with collectives device by device. The cluster wants
// it as one gang. So a device's call waits here until the calls of all other devices of its gang are there; whatever is
// submitted for the waiting devices meanwhile is held behind it, in order, and nobody blocks: outputs are minted as
// pending values. When nothing is held (always, without such gangs) Submit runs the work at once on the caller.
//
// Ownership: owned by a ClientState. Held work owns what it needs.
// Threads:   Submit and Join from any thread. One thread at a time releases held work, outside the lock; a thread of
//            the callback pool watches deadlines while a gang is incomplete.
// Locks:     mutex_, never held while work runs.
#ifndef PTPATHWAYS_VALUES_SEQUENCER_H_
#define PTPATHWAYS_VALUES_SEQUENCER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"

namespace pathways::values {

// One device's part in a gang.
struct GangCall {
  std::vector<uint32_t> devices;  // of the gang: equal in all its calls
  size_t row = 0;                 // this call's position in devices
  std::string signature;          // what must be equal in all calls, e.g. types of parameters and results
  std::string what;               // "function 'step' (train.py:12)", for errors
  // Called once, on the call of row 0, with all calls by row. Submits the gang.
  std::function<void(std::span<const std::shared_ptr<GangCall>>)> launch;
  // Called instead, on every call, when the gang cannot be submitted.
  std::function<void(const Status&)> fail;
};

class Sequencer : public std::enable_shared_from_this<Sequencer> {
 public:
  explicit Sequencer(std::chrono::milliseconds gang_timeout) : gang_timeout_(gang_timeout) {}

  // Runs `work`, which acts on values of `devices`, after everything submitted for these devices before.
  void Submit(std::span<const uint32_t> devices, std::function<void()> work);
  void Join(std::shared_ptr<GangCall> call);
  // Whether nothing is held, so that Submit would run the work at once.
  bool is_idle() const { return held_.load(std::memory_order_acquire) == 0; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    std::vector<uint32_t> devices;
    std::function<void()> work;  // or:
    std::shared_ptr<GangCall> call;
    Clock::time_point deadline;  // of a call
  };

  void Push(const std::shared_ptr<Item>& item);
  // Inside it is not checked: the analysis does not follow a lock that another function has made.
  void Release(UniqueLock& lock) PW_REQUIRES(mutex_) PW_NO_THREAD_SAFETY;
  // The next work that may run, taken off its queues; null when all wait.
  std::function<void()> TakeReady() PW_REQUIRES(mutex_);
  std::function<void()> TakeGang(const Item& first) PW_REQUIRES(mutex_);
  bool IsFront(const Item& item) const PW_REQUIRES(mutex_);
  void Watch();
  std::function<void()> TakeExpired(Clock::time_point now) PW_REQUIRES(mutex_);

  const std::chrono::milliseconds gang_timeout_;
  std::atomic<size_t> held_{0};  // items pushed and not finished
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, std::deque<std::shared_ptr<Item>>> queues_ PW_GUARDED_BY(mutex_);
  bool releasing_ PW_GUARDED_BY(mutex_) = false;
  bool watching_ PW_GUARDED_BY(mutex_) = false;
  size_t calls_ PW_GUARDED_BY(mutex_) = 0;  // gang calls in queues_
};

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_SEQUENCER_H_
