// DeviceTable: the devices of a client, which it got when it was made.
//
// Ownership: owned by its ClientState, which every device knows; callers borrow the devices.
// Threads:   filled before the client is shared and constant afterwards, except for bindings (device.h). Locks: none.
#ifndef PTPATHWAYS_VALUES_DEVICE_TABLE_H_
#define PTPATHWAYS_VALUES_DEVICE_TABLE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/client/session.h"
#include "csrc/values/device.h"

namespace pathways::values {

class DeviceTable {
 public:
  // Devices that are not bound yet.
  void AddLogical(ClientState* client, int64_t count);
  // One for each of `devices`, the cluster's numbers, bound to it for good. INVALID_ARGUMENT: it is named twice, or no
  // host that is alive has it.
  Status AddBound(ClientState* client, std::span<const wire::HostDescription> hosts, std::span<const int64_t> devices);

  // By id.
  std::span<PJRT_Device* const> all() const { return all_; }
  std::span<PJRT_Memory* const> memories() const { return memories_; }
  std::span<PJRT_DeviceDescription* const> descriptions() const { return descriptions_; }
  // The device with this id, or null.
  PJRT_Device* Find(int64_t id) const;
  // `device`, or the device of `memory`, or the error that neither is one of ours.
  Result<PJRT_Device*> Of(PJRT_Device* device, PJRT_Memory* memory) const;
  // Of devices that are bound for good. FAILED_PRECONDITION, unless the cluster of `session` has the same, by number
  // and island.
  Status CheckSame(const client::Session& session) const;

 private:
  void Add(std::unique_ptr<PJRT_Device> device);

  std::vector<std::unique_ptr<PJRT_Device>> devices_;
  // Of devices_, in the form in which the C API gives them.
  std::vector<PJRT_Device*> all_;
  std::vector<PJRT_Memory*> memories_;
  std::vector<PJRT_DeviceDescription*> descriptions_;
};

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_DEVICE_TABLE_H_
