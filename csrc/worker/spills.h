// Spills: memory that is taken back for a while (paper 4.6). The controller names buffers to move to host memory, and
// later to put back; in between they can be read and copied, but no computation takes them.
//
// Ownership: owned by the engine; borrows the context and the data plane. Threads: the engine's. Locks: none.
#ifndef PTPATHWAYS_WORKER_SPILLS_H_
#define PTPATHWAYS_WORKER_SPILLS_H_

#include <memory>

#include "csrc/dataplane/data_plane.h"
#include "csrc/wire/plan_bodies.h"
#include "csrc/worker/host_context.h"

namespace pathways::worker {

class Spills {
 public:
  Spills(HostContext& context, dataplane::DataPlane& data) : context_(context), data_(data) {}

  // Answers with the same message, in parts, as each buffer is out or could not be moved.
  void Spill(const wire::Spill& spill);
  void Restore(const wire::Restore& restore);

 private:
  struct Moving;
  void Finish(const std::shared_ptr<Moving>& moving);

  HostContext& context_;
  dataplane::DataPlane& data_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_SPILLS_H_
