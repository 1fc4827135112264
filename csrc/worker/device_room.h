// DeviceRoom: how many executions each device has that have not ended, so that nobody enqueues more than the plugin
// takes without making the caller wait.
//
// XLA's clients let 32 executions wait on a device, for their arguments or for each other; who enqueues one more sleeps
// inside the plugin until one has ended. The engine must never sleep there: it is the one that hears of a lost host or
// a run that failed elsewhere, and so the one that can end what the executions wait for.
//
// Ownership: shared with the callbacks of executions.
// Threads:   Enter and Refuses: the engine's. Leave: any; `on_room` is called there.
// Locks:     none.
#ifndef PTPATHWAYS_WORKER_DEVICE_ROOM_H_
#define PTPATHWAYS_WORKER_DEVICE_ROOM_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

namespace pathways::worker {

class DeviceRoom {
 public:
  // Less than any plugin's bound: an execution's event may be set before the plugin counts it out.
  static constexpr int kMax = 24;
  // Room is told of when so many are left, so that the engine comes back for several at once and no device runs dry.
  static constexpr int kResumeAt = 16;

  DeviceRoom(size_t devices, std::function<void()> on_room) : in_flight_(devices), on_room_(std::move(on_room)) {}

  // True: the device takes no more for now, and on_room will be called when it does. Only the device that was asked for
  // last is waited for. on_room may also be called when nobody waits any more.
  bool Refuses(size_t device) {
    waits_for_.store(kNobody);
    if (in_flight_[device].load() < kMax) return false;
    waits_for_.store(device);
    // If this reads a full device, whoever empties it does so later, and sees who waits.
    return in_flight_[device].load() >= kMax;
  }
  // What somebody waits for beside room may be there.
  void Wake() { on_room_(); }
  // An execution has been enqueued; Leave when it has ended.
  void Enter(size_t device) { in_flight_[device].fetch_add(1); }
  void Leave(size_t device) {
    if (in_flight_[device].fetch_sub(1) - 1 == kResumeAt && waits_for_.load() == device) on_room_();
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;
  std::vector<std::atomic<int>> in_flight_;
  std::atomic<size_t> waits_for_{kNobody};
  const std::function<void()> on_room_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_DEVICE_ROOM_H_
