// Dispatch: hands each message of the controller to the part it is for, in order, and lets those wait that must.
//
// Ownership: owned by the engine; borrows all parts. Threads: the engine's. Locks: none.
#ifndef PTPATHWAYS_WORKER_DISPATCH_H_
#define PTPATHWAYS_WORKER_DISPATCH_H_

#include "csrc/transport/frame.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/file_bodies.h"
#include "csrc/wire/pipeline_bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::worker {

struct Parts;

class Dispatch {
 public:
  explicit Dispatch(Parts& parts) : parts_(parts) {}

  // A message of the controller; what is wrong with it is logged. The frames may be moved from.
  void OnMessage(transport::Frames& frames);
  // The run at hand may go on, if there is one.
  void Resume();

 private:
  struct Message {
    const wire::Head& head;
    transport::Frames& frames;
  };
  // One of which nothing but the type matters.
  template <wire::Type T>
  struct Bare {
    static constexpr wire::Type kType = T;
  };
  using Handler = Status (*)(Dispatch&, Message&);
  template <typename Body>
  static Status Call(Dispatch& self, Message& message);
  template <typename... Bodies>
  static constexpr auto TableOf();

  Status Take(transport::Frames& frames);
  Status Handle(const wire::Head& head, transport::Frames& frames);
  // Whether a message is handled at once although the run at hand is parked.
  Result<bool> Admits(const wire::Head& head);
  void Refused(const Status& status) const;
  // Whether what is to be copied must arrive first.
  bool MustWait(const wire::Copy& copy);

  // By type of message:
  Status On(const wire::Run& run, Message& message);
  Status On(wire::RunProgram run, Message& message);
  Status On(const wire::RunInPlace& run, Message& message);
  Status On(wire::Register request, Message& message);
  Status On(wire::RegisterPlan plan, Message& message);
  Status On(wire::Unregister request, Message& message);
  Status On(const wire::Put& put, Message& message);
  Status On(const wire::Expect& expect, Message& message);
  Status On(wire::Fetch fetch, Message& message);
  Status On(const wire::Copy& copy, Message& message);
  Status On(const wire::Free& free, Message& message);
  Status On(const wire::Spill& spill, Message& message);
  Status On(const wire::Restore& restore, Message& message);
  Status On(wire::Save save, Message& message);
  Status On(wire::Load load, Message& message);
  Status On(const wire::OpenPipeline& open, Message& message);
  Status On(const wire::Feed& feed, Message& message);
  Status On(wire::ClosePipeline close, Message& message);
  Status On(wire::Query query, Message& message);
  Status On(const wire::Welcome& welcome, Message& message);
  Status On(const wire::Topology& topology, Message& message);
  Status On(const wire::HostLost& lost, Message& message);
  Status On(wire::TransferFailed failed, Message& message);
  Status On(const wire::Rotate& rotate, Message& message);
  Status On(const wire::Abort& abort, Message& message);
  Status On(wire::OwnerGone gone, Message& message);
  Status On(const wire::Reject& reject, Message& message);
  Status On(Bare<wire::Type::kHeartbeat>, Message& message);
  Status On(Bare<wire::Type::kGoodbye>, Message& message);

  Parts& parts_;
  wire::Run spare_run_;  // any, with the memory of an earlier message's arrays
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_DISPATCH_H_
