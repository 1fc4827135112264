// Launcher: enqueues functions on this host's devices without waiting, and says when that would wait.
//
// Ownership: owned by the engine; what counts and times executions is shared with the plugin's callbacks.
// Threads:   the engine's. `on_room` is called on any. Locks: none.
#ifndef PTPATHWAYS_WORKER_LAUNCHER_H_
#define PTPATHWAYS_WORKER_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "csrc/collective/gang.h"
#include "csrc/pjrt/executable.h"
#include "csrc/worker/device_room.h"
#include "csrc/worker/function.h"
#include "csrc/worker/gangs.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/run_times.h"

namespace pathways::worker {

class Launcher {
 public:
  // `on_room`: what was refused for want of room, or had to arrive, may be tried again.
  Launcher(const HostContext& context, Gangs& gangs, std::function<void()> on_room)
      : context_(context),
        gangs_(gangs),
        room_(std::make_shared<DeviceRoom>(context.device_count(), std::move(on_room))),
        ends_(std::make_shared<DeviceEnds>(context.device_count())) {}

  // Whether a device of a run takes no more for now; on_room is called when it does.
  bool IsFull(const std::vector<uint32_t>& devices);
  // Whether a computation or copy that reads this is not to be enqueued yet (EnqueueAhead); on_room is called when it
  // may be tried again. `surely`: what makes the value must have ended well, too, and not only its transfers: asked for
  // what spans hosts, since the others do not hear of it when a part has read what failed.
  bool MustArrive(store::Object& value, bool surely = false);

  // The arguments of the next launch: row i holds those of the function's i-th shard here.
  struct Arguments {
    std::vector<std::vector<pjrt::Buffer*>> rows;
    std::vector<int64_t> non_donatable;  // positions
  };
  // Room for `rows` x `positions` of them, and all may be donated.
  Arguments& Begin(size_t rows, size_t positions);
  const Arguments& arguments() const { return arguments_; }

  struct Launch {
    size_t device = 0;  // local, of a function of one device
    uint64_t run = 0;
    collective::LaunchId id{};
    std::shared_ptr<RunTimes::Run> times = nullptr;  // gets when `step` is computed; null: nobody wants to know
    size_t step = 0;
  };
  // Enqueues a function with these arguments on its shards of this host. The outputs are by row, until the next launch.
  Status Enqueue(const Function& function, const Launch& launch);
  pjrt::ExecuteOutputs& outputs() { return outputs_; }

 private:
  void NoteEnd(size_t row, size_t device, const Launch& launch, int64_t enqueued_ns);

  const HostContext& context_;
  Gangs& gangs_;
  const std::shared_ptr<DeviceRoom> room_;
  const std::shared_ptr<DeviceEnds> ends_;
  // Reused from launch to launch:
  Arguments arguments_;
  std::vector<std::span<pjrt::Buffer* const>> spans_;
  pjrt::ExecuteOutputs outputs_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_LAUNCHER_H_
