#include "csrc/values/device.h"

namespace pathways::values {
namespace {

// Callers since C API 0.112 keep their own object per memory in it, by key.
struct MemoryFunctionTable {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  size_t instance_struct_size;
  void* (*get_user_data)(PJRT_Memory*, const void* key);
  void (*set_user_data)(PJRT_Memory*, const void* key, void* data, void (*destroy)(void*));
};
static_assert(sizeof(MemoryFunctionTable) == sizeof(PJRT_Memory_FunctionTable));
static_assert(offsetof(MemoryFunctionTable, set_user_data) == offsetof(PJRT_Memory_FunctionTable, set_user_data));

void* GetUserData(PJRT_Memory* memory, const void* key) {
  Memory* self = static_cast<Memory*>(memory);
  std::lock_guard lock(self->mutex);
  auto it = self->user_data.find(key);
  return it == self->user_data.end() ? nullptr : it->second.first;
}

void SetUserData(PJRT_Memory* memory, const void* key, void* data, void (*destroy)(void*)) {
  Memory* self = static_cast<Memory*>(memory);
  std::pair<void*, void (*)(void*)> old{nullptr, nullptr};
  {
    std::lock_guard lock(self->mutex);
    auto it = self->user_data.find(key);
    if (it != self->user_data.end()) old = it->second;
    if (data != nullptr) {
      self->user_data[key] = {data, destroy};
    } else if (it != self->user_data.end()) {
      self->user_data.erase(it);
    }
  }
  if (old.first != nullptr && old.second != nullptr) old.second(old.first);
}

const MemoryFunctionTable kMemoryTable = {
    sizeof(MemoryFunctionTable), nullptr, sizeof(PJRT_Memory), &GetUserData, &SetUserData,
};

}  // namespace

Memory::Memory(PJRT_Device* of) : device(of) { vtable = const_cast<MemoryFunctionTable*>(&kMemoryTable); }

Memory::~Memory() {
  for (auto& [key, value] : user_data) {
    if (value.first != nullptr && value.second != nullptr) value.second(value.first);
  }
}

}  // namespace pathways::values

PJRT_Device::PJRT_Device(pathways::values::ClientState* owner, int id, uint32_t bound_to,
                         const pathways::wire::HostDescription& on_host, size_t host_ordinal)
    : client(owner),
      island(on_host.island),
      reach(on_host.collectives_reach()),
      memory(this),
      memories{&memory},
      self{this},
      bound_(std::make_shared<const std::vector<uint32_t>>(1, bound_to)) {
  const std::string number = std::to_string(id);
  const std::string where = on_host.name + "/" + on_host.platform + ":" + std::to_string(host_ordinal);
  description.id = id;
  description.kind = on_host.devices[host_ordinal].kind;
  description.debug_string = "PATHWAYS:" + number + " (" + where + ", island " + on_host.island + ")";
  description.to_string = "PathwaysDevice(id=" + number + ", on=" + where + ")";
  description.attributes.Add("host", on_host.name);
  description.attributes.Add("island", on_host.island);
  description.attributes.Add("platform", on_host.platform);
  description.attributes.Add("cluster_device", static_cast<int64_t>(bound_to));
  description.attributes.Add("local_ordinal", static_cast<int64_t>(host_ordinal));
  memory.debug_string = "memory of " + description.debug_string;
  memory.to_string = "PathwaysMemory(id=" + number + ", kind=device)";
}

PJRT_Device::PJRT_Device(pathways::values::ClientState* owner, int id)
    : client(owner), memory(this), memories{&memory}, self{this} {
  const std::string number = std::to_string(id);
  description.id = id;
  description.kind = "slice";
  description.debug_string = "PATHWAYS:" + number;
  description.to_string = "PathwaysDevice(id=" + number + ")";
  memory.debug_string = "memory of " + description.debug_string;
  memory.to_string = "PathwaysMemory(id=" + number + ", kind=device)";
}

pathways::Result<PJRT_Device::DeviceListPtr> PJRT_Device::Bound() const {
  if (DeviceListPtr devices = this->devices()) return devices;
  return pathways::FailedPrecondition("device xla:" + std::to_string(description.id) +
                                      " stands for no slice now: its slice was released, or none was made yet; ask for "
                                      "one with cluster.slice(), and use its .device");
}
