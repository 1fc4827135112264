// Topologies: the devices of a client, described without their client.
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/plugin/entry.h"
#include "csrc/plugin/handles.h"

struct PJRT_SerializedTopology {
  std::string bytes;
};

namespace pathways::plugin {
namespace {

// Equal for clusters that a program is compiled for alike: platform, and kind and island of every device.
std::string Serialize(const values::ClientState& state) {
  std::string devices;
  std::string island;
  int islands = 0;
  for (const PJRT_Device* device : state.devices().all()) {
    if (device->island != island) ++islands;  // numbered, since names may differ from start to start
    island = device->island;
    devices += " " + std::to_string(islands) + "/" + device->description.kind;
  }
  // PjRtTopologyDescriptionProto of openxla/xla: 2 platform_name, 3 platform_version.
  ProtoWriter proto;
  proto.Bytes(2, kPlatformName);
  proto.Bytes(3, state.platform_version() + ";" + devices);
  return std::move(proto).Take();
}

}  // namespace

Status TopologyDescription_Create(PJRT_TopologyDescription_Create_Args* args) {
  std::shared_ptr<client::Session> session = client::Session::Current();
  if (session == nullptr || session->closed()) {
    return FailedPrecondition("a topology is that of the current cluster: call ptpathways.init() first");
  }
  PW_ASSIGN_OR_RETURN(std::shared_ptr<values::ClientState> state,
                      values::ClientState::Create(std::move(session), values::ClientOptions()));
  values::ClientState* const raw = state.get();
  args->topology = new PJRT_TopologyDescription{std::move(state), raw};
  return OkStatus();
}

Status TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args* args) {
  if (args->topology->owned == nullptr) return OkStatus();  // a client's own: goes with the client
  delete args->topology;
  return OkStatus();
}

Status TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args* args) {
  args->platform_name = kPlatformName;
  args->platform_name_size = std::strlen(kPlatformName);
  return OkStatus();
}

Status TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args* args) {
  args->platform_version = args->topology->state->platform_version().c_str();
  args->platform_version_size = args->topology->state->platform_version().size();
  return OkStatus();
}

Status TopologyDescription_GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) {
  args->descriptions = args->topology->state->devices().descriptions().data();
  args->num_descriptions = args->topology->state->devices().descriptions().size();
  return OkStatus();
}

Status TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args* args) {
  args->serialized_topology = new PJRT_SerializedTopology{Serialize(*args->topology->state)};
  args->serialized_bytes = args->serialized_topology->bytes.data();
  args->serialized_bytes_size = args->serialized_topology->bytes.size();
  args->serialized_topology_deleter = [](PJRT_SerializedTopology* topology) { delete topology; };
  return OkStatus();
}

Status TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args* args) {
  args->attributes = nullptr;
  args->num_attributes = 0;
  return OkStatus();
}

Status TopologyDescription_Fingerprint(PJRT_TopologyDescription_Fingerprint_Args* args) {
  args->fingerprint = std::hash<std::string>()(Serialize(*args->topology->state));
  return OkStatus();
}

}  // namespace pathways::plugin
