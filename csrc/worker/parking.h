// Parking: which of the controller's messages wait while a device is full, or while an argument must arrive first. A
// pure state machine.
//
// The run at hand cannot go on: it is parked, and the messages behind it wait in their order, but for those that can
// end what fills the device, announcements of bytes, and the question what is waited for.
//
// Ownership: owned by the engine. Threads: none inside; the engine's.
#ifndef PTPATHWAYS_WORKER_PARKING_H_
#define PTPATHWAYS_WORKER_PARKING_H_

#include <cstddef>
#include <deque>
#include <optional>

#include "csrc/transport/frame.h"
#include "csrc/wire/message.h"

namespace pathways::worker {

class Parking {
 public:
  // Messages that are caught up on before the socket is looked at again.
  static constexpr int kBatch = 64;

  // What has come, as far as it matters here.
  struct Arrival {
    wire::Type type;
    bool asks_what_is_awaited = false;  // a query
    bool memory_is_bounded = false;     // now, on any device of this host
  };

  // The run at hand cannot go on for now. With frames: its message, which is to be handled once more before all others.
  void Park() { parked_ = true; }
  void Park(transport::Frames frames);
  bool parked() const { return parked_; }
  size_t waiting() const { return waiting_.size(); }

  // Whether a message that has come while parked is to be handled at once; else it is to Wait.
  bool Admits(const Arrival& arrival);
  void Wait(transport::Frames frames) { waiting_.push_back(std::move(frames)); }

  // The run at hand may go on: true when there is one. What follows then are calls of Next, until it gives nothing.
  bool Resume();
  // The message that comes next; nothing when the run at hand is parked again, when none waits, or when the batch is
  // over, and then Resume is due() once more, with what comes meanwhile behind.
  std::optional<transport::Frames> Next();
  bool due() const { return due_; }

 private:
  bool parked_ = false;
  bool due_ = false;
  int taken_ = 0;                          // since Resume
  bool owner_gone_waits_ = false;          // a client's end is among those that wait
  std::deque<transport::Frames> waiting_;  // behind the run at hand
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_PARKING_H_
