// Devices, their descriptions and memories: what can be asked of them.
#include "csrc/plugin/device.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "csrc/plugin/entry.h"
#include "csrc/values/client.h"

namespace pathways::plugin {
namespace {

constexpr std::chrono::milliseconds kAskTimeout{30'000};

thread_local PJRT_Device* about_to_execute_on = nullptr;

values::Memory* Unwrap(PJRT_Memory* memory) { return static_cast<values::Memory*>(memory); }

}  // namespace

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
  args->kind = values::kMemoryKind;
  args->kind_size = std::strlen(values::kMemoryKind);
  return OkStatus();
}

Status Memory_Kind_Id(PJRT_Memory_Kind_Id_Args* args) {
  args->kind_id = values::kMemoryKindId;
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
