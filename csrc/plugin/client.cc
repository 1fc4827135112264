// Clients: making them, and what can be asked of them.
#include <chrono>
#include <cstring>
#include <utility>

#include "csrc/plugin/entry.h"
#include "csrc/plugin/handles.h"

namespace pathways::plugin {
namespace {

Result<values::ClientOptions> ReadOptions(const PJRT_NamedValue* values, size_t count) {
  values::ClientOptions options;
  if (count > 0 && values == nullptr) return InvalidArgument("the client's options are null, but counted");
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& value = values[i];
    const std::string name(value.name, value.name_size);
    if (name == "devices" && value.type == PJRT_NamedValue_kInt64List) {
      options.devices.assign(value.int64_array_value, value.int64_array_value + value.value_size);
    } else if (name == "logical_devices" && value.type == PJRT_NamedValue_kInt64) {
      if (value.int64_value < 1) {
        return InvalidArgument("expected logical_devices >= 1, got " + std::to_string(value.int64_value));
      }
      options.logical_devices = value.int64_value;
    } else if (name == "gang_timeout_seconds" && value.type == PJRT_NamedValue_kInt64) {
      if (value.int64_value < 1) {
        return InvalidArgument("expected gang_timeout_seconds >= 1, got " + std::to_string(value.int64_value));
      }
      options.gang_timeout = std::chrono::seconds(value.int64_value);
    } else {
      return InvalidArgument("unknown client option '" + name + "' (of type " + std::to_string(value.type) +
                             "); expected devices (list of int), logical_devices (int) or gang_timeout_seconds (int)");
    }
  }
  return options;
}

Result<std::shared_ptr<client::Session>> CurrentSession() {
  std::shared_ptr<client::Session> session = client::Session::Current();
  if (session == nullptr || session->closed()) {
    return FailedPrecondition(
        "there is no cluster to attach to: call ptpathways.init() before torch_xla or JAX first uses a device");
  }
  return session;
}

}  // namespace

Status Client_Create(PJRT_Client_Create_Args* args) {
  NoteForks();
  PW_ASSIGN_OR_RETURN(const values::ClientOptions options, ReadOptions(args->create_options, args->num_options));
  PW_ASSIGN_OR_RETURN(std::shared_ptr<client::Session> session, CurrentSession());
  PW_ASSIGN_OR_RETURN(std::shared_ptr<values::ClientState> state,
                      values::ClientState::Create(std::move(session), options));
  values::AddClient(state);
  args->client = new PJRT_Client(std::move(state));
  return OkStatus();
}

Status Client_Destroy(PJRT_Client_Destroy_Args* args) {
  delete args->client;
  return OkStatus();
}

Status Client_PlatformName(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = kPlatformName;
  args->platform_name_size = std::strlen(kPlatformName);
  return OkStatus();
}

Status Client_ProcessIndex(PJRT_Client_ProcessIndex_Args* args) {
  args->process_index = 0;
  return OkStatus();
}

Status Client_PlatformVersion(PJRT_Client_PlatformVersion_Args* args) {
  args->platform_version = args->client->state->platform_version().c_str();
  args->platform_version_size = args->client->state->platform_version().size();
  return OkStatus();
}

Status Client_Devices(PJRT_Client_Devices_Args* args) {
  args->devices = args->client->state->devices().all().data();
  args->num_devices = args->client->state->devices().all().size();
  return OkStatus();
}

Status Client_AddressableDevices(PJRT_Client_AddressableDevices_Args* args) {
  args->addressable_devices = args->client->state->devices().all().data();
  args->num_addressable_devices = args->client->state->devices().all().size();
  return OkStatus();
}

Status Client_LookupDevice(PJRT_Client_LookupDevice_Args* args) {
  args->device = args->client->state->devices().Find(args->id);
  if (args->device != nullptr) return OkStatus();
  return InvalidArgument("expected a device id below " + std::to_string(args->client->state->devices().all().size()) +
                         ", got " + std::to_string(args->id));
}

Status Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args* args) {
  args->addressable_device = args->client->state->devices().Find(args->local_hardware_id);
  if (args->addressable_device != nullptr) return OkStatus();
  return InvalidArgument("expected a device number below " +
                         std::to_string(args->client->state->devices().all().size()) + ", got " +
                         std::to_string(args->local_hardware_id));
}

Status Client_AddressableMemories(PJRT_Client_AddressableMemories_Args* args) {
  args->addressable_memories = args->client->state->devices().memories().data();
  args->num_addressable_memories = args->client->state->devices().memories().size();
  return OkStatus();
}

Status Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args* args) {
  const int64_t wanted = static_cast<int64_t>(args->num_replicas) * args->num_partitions;
  const int64_t have = static_cast<int64_t>(args->client->state->devices().all().size());
  if (args->num_replicas < 1 || args->num_partitions < 1 || wanted > have) {
    return InvalidArgument("expected replicas x partitions between 1 and the " + std::to_string(have) +
                           " devices, got " + std::to_string(args->num_replicas) + " x " +
                           std::to_string(args->num_partitions));
  }
  if (args->default_assignment == nullptr || args->default_assignment_size < static_cast<size_t>(wanted)) {
    return InvalidArgument("the device assignment needs room for " + std::to_string(wanted) + " ids");
  }
  for (int64_t i = 0; i < wanted; ++i) args->default_assignment[i] = static_cast<int>(i);
  return OkStatus();
}

Status Client_TopologyDescription(PJRT_Client_TopologyDescription_Args* args) {
  args->topology = &args->client->topology;
  return OkStatus();
}

Status Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args*) {
  return OkStatus();  // there is one client process
}

}  // namespace pathways::plugin
