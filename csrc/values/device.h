// Devices, their descriptions and memories, as callers of the plugin see them.
//
// A device of the plugin is a logical device of the client: its id is its position, and it is bound to a slice of the
// cluster's devices (paper 4.1, virtual devices). Bindings may come late, go, and change. Each has one memory, of kind
// "device".
//
// Ownership: owned by the ClientState; the caller borrows pointers.
// Threads:   immutable after construction, except the binding (atomic) and a memory's user data.
// Locks:     Memory::mutex guards its user data, and is a leaf.
#ifndef PTPATHWAYS_VALUES_DEVICE_H_
#define PTPATHWAYS_VALUES_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/session.h"
#include "csrc/values/named_value.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::values {
class ClientState;
}

struct PJRT_DeviceDescription {
  int id = 0;
  std::string kind;
  std::string debug_string;
  std::string to_string;
  pathways::values::NamedValueList attributes;
};

namespace pathways::values {

struct Memory final : PJRT_Memory {
  explicit Memory(PJRT_Device* of);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  PJRT_Device* const device;
  std::string debug_string;
  std::string to_string;
  std::mutex mutex;
  // The caller's key -> its value and how to destroy it.
  std::map<const void*, std::pair<void*, void (*)(void*)>> user_data PW_GUARDED_BY(mutex);
};

inline constexpr char kMemoryKind[] = "device";
inline constexpr int kMemoryKindId = 0x70770001;  // any number, equal for equal kinds

}  // namespace pathways::values

struct PJRT_Device {
  using DeviceListPtr = std::shared_ptr<const std::vector<uint32_t>>;

  // Bound for good to one device of the cluster.
  PJRT_Device(pathways::values::ClientState* owner, int id, uint32_t bound_to,
              const pathways::wire::HostDescription& host, size_t host_ordinal);
  // Not bound yet.
  PJRT_Device(pathways::values::ClientState* owner, int id);

  // The cluster's numbers of the devices of its slice, of which there is at least one; null while it is not bound.
  DeviceListPtr devices() const { return bound_.load(); }
  // The same, or FAILED_PRECONDITION, which says that the slice was freed.
  pathways::Result<DeviceListPtr> Bound() const;
  void Bind(DeviceListPtr devices) { bound_.store(std::move(devices)); }

  pathways::values::ClientState* const client;
  const std::string island;  // of a device that is bound for good
  const std::string reach;   // the same: devices of one computation have it in common
  PJRT_DeviceDescription description;
  pathways::values::Memory memory;
  PJRT_Memory* const memories[1];
  PJRT_Device* const self[1];

 private:
  std::atomic<DeviceListPtr> bound_;
};

#endif  // PTPATHWAYS_VALUES_DEVICE_H_
