#include "csrc/plugin/device.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "csrc/plugin/client.h"
#include "csrc/plugin/entry.h"

namespace pathways::plugin {
namespace {

constexpr std::chrono::milliseconds kAskTimeout{30'000};

thread_local PJRT_Device* about_to_execute_on = nullptr;

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

Memory* Unwrap(PJRT_Memory* memory) { return static_cast<Memory*>(memory); }

}  // namespace

Memory::Memory(PJRT_Device* of) : device(of) { vtable = const_cast<MemoryFunctionTable*>(&kMemoryTable); }

Memory::~Memory() {
  for (auto& [key, value] : user_data) {
    if (value.first != nullptr && value.second != nullptr) value.second(value.first);
  }
}

}  // namespace pathways::plugin

PJRT_Device::PJRT_Device(pathways::plugin::ClientState* owner, int id, uint32_t bound_to,
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

PJRT_Device::PJRT_Device(pathways::plugin::ClientState* owner, int id)
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

namespace pathways::plugin {

PJRT_Device* AboutToExecuteOn() { return about_to_execute_on; }

void ForgetExecution() { about_to_execute_on = nullptr; }

Status DeviceDescription_Id(PJRT_DeviceDescription_Id_Args* args) {
  args->id = args->device_description->id;
  return OkStatus();
}

Status DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  args->process_index = 0;  // one client process, whatever the number of hosts
  return OkStatus();
}

Status DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args* args) {
  args->attributes = args->device_description->attributes.data();
  args->num_attributes = args->device_description->attributes.size();
  return OkStatus();
}

Status DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args* args) {
  args->device_kind = args->device_description->kind.c_str();
  args->device_kind_size = args->device_description->kind.size();
  return OkStatus();
}

Status DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args* args) {
  args->debug_string = args->device_description->debug_string.c_str();
  args->debug_string_size = args->device_description->debug_string.size();
  return OkStatus();
}

Status DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args* args) {
  args->to_string = args->device_description->to_string.c_str();
  args->to_string_size = args->device_description->to_string.size();
  return OkStatus();
}

Status Device_GetDescription(PJRT_Device_GetDescription_Args* args) {
  args->device_description = &args->device->description;
  return OkStatus();
}

Status Device_IsAddressable(PJRT_Device_IsAddressable_Args* args) {
  args->is_addressable = true;
  about_to_execute_on = args->device->client->is_logical() ? args->device : nullptr;
  return OkStatus();
}

Status Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args* args) {
  args->local_hardware_id = args->device->description.id;
  return OkStatus();
}

Status Device_AddressableMemories(PJRT_Device_AddressableMemories_Args* args) {
  args->memories = args->device->memories;
  args->num_memories = 1;
  return OkStatus();
}

Status Device_DefaultMemory(PJRT_Device_DefaultMemory_Args* args) {
  args->memory = args->device->memories[0];
  return OkStatus();
}

Status Device_MemoryStats(PJRT_Device_MemoryStats_Args* args) {
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, args->device->Bound());
  // Everything after bytes_in_use is optional, and a caller of another version may not have it: clear what is there.
  const size_t from = offsetof(PJRT_Device_MemoryStats_Args, bytes_in_use);
  const size_t end = std::min(args->struct_size, sizeof(PJRT_Device_MemoryStats_Args));
  std::memset(reinterpret_cast<char*>(args) + from, 0, end - from);
  const std::shared_ptr<client::Session> session = args->device->client->session();
  for (const uint32_t device : *devices) {  // of a slice, the sums
    PW_ASSIGN_OR_RETURN(const client::QueryAnswer answer,
                        session->queries().Ask(wire::QueryKind::kMemoryStats, 0, device, kAskTimeout));
    for (const wire::Property& property : answer.properties) {
      if (property.name == "bytes_in_use") args->bytes_in_use += property.integer;
      if (property.name == "peak_bytes" && Has(args, &PJRT_Device_MemoryStats_Args::peak_bytes_in_use_is_set)) {
        args->peak_bytes_in_use += property.integer;
        args->peak_bytes_in_use_is_set = true;
      }
      // Always said to be set (0: no limit): torch_xla reads it without asking.
      if (property.name == "limit_bytes" && Has(args, &PJRT_Device_MemoryStats_Args::bytes_limit_is_set)) {
        args->bytes_limit += property.integer;
        args->bytes_limit_is_set = true;
      }
    }
  }
  return OkStatus();
}

Status Device_GetAttributes(PJRT_Device_GetAttributes_Args* args) {
  args->attributes = args->device->description.attributes.data();
  args->num_attributes = args->device->description.attributes.size();
  args->device_attributes = nullptr;
  args->attributes_deleter = [](PJRT_DeviceAttributes*) {};  // they belong to the device
  return OkStatus();
}

Status Device_CreateAsyncTrackingEvent(PJRT_Device_CreateAsyncTrackingEvent_Args* args) {
  args->event = nullptr;  // callers take null for "this device does not track"; an error would end the process
  return OkStatus();
}

Status AsyncTrackingEvent_Destroy(PJRT_AsyncTrackingEvent_Destroy_Args*) { return OkStatus(); }

Status Device_PoisonExecution(PJRT_Device_PoisonExecution_Args* args) {
  args->poisoned = false;  // launches are not known by their launch ids here
  return OkStatus();
}

Status Memory_Id(PJRT_Memory_Id_Args* args) {
  args->id = Unwrap(args->memory)->device->description.id;
  return OkStatus();
}

Status Memory_Kind(PJRT_Memory_Kind_Args* args) {
  args->kind = kMemoryKind;
  args->kind_size = std::strlen(kMemoryKind);
  return OkStatus();
}

Status Memory_Kind_Id(PJRT_Memory_Kind_Id_Args* args) {
  args->kind_id = kMemoryKindId;
  return OkStatus();
}

Status Memory_DebugString(PJRT_Memory_DebugString_Args* args) {
  args->debug_string = Unwrap(args->memory)->debug_string.c_str();
  args->debug_string_size = Unwrap(args->memory)->debug_string.size();
  return OkStatus();
}

Status Memory_ToString(PJRT_Memory_ToString_Args* args) {
  args->to_string = Unwrap(args->memory)->to_string.c_str();
  args->to_string_size = Unwrap(args->memory)->to_string.size();
  return OkStatus();
}

Status Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args* args) {
  args->devices = Unwrap(args->memory)->device->self;
  args->num_devices = 1;
  return OkStatus();
}

}  // namespace pathways::plugin
