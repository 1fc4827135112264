// Slices: devices that the controller assigns to this client (paper 4.1).
//
// Ownership: owned by the session; borrows the core. Threads: any. Locks: the session's (core.h).
#ifndef PTPATHWAYS_CLIENT_SLICES_H_
#define PTPATHWAYS_CLIENT_SLICES_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/pending.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::client {

struct Slice {
  uint64_t id = 0;
  std::vector<uint32_t> devices;
};

class Slices {
 public:
  explicit Slices(Core& core) : core_(core) {}

  // Waits for the controller. `request`: its number is filled in.
  Result<Slice> Request(wire::RequestSlice request, std::chrono::milliseconds timeout);
  void Release(uint64_t slice) noexcept;

  Status OnGranted(const wire::SliceGranted& answer, const Received& received);
  void Fail(const Loss& loss, Endings& ended) PW_REQUIRES(core_.mutex) { open_.Fail(loss, ended); }

 private:
  Core& core_;
  Questions<Slice> open_ PW_GUARDED_BY(core_.mutex);
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_SLICES_H_
