#include "csrc/pjrt/topology.h"

namespace pathways::pjrt {

Result<std::unique_ptr<Topology>> Topology::Create(std::shared_ptr<const Api> api, std::string_view name,
                                                   const NamedValues& options) {
  const std::vector<PJRT_NamedValue> values = ToNamedValues(options);
  PJRT_TopologyDescription_Create_Args args{};
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  args.create_options = values.data();
  args.num_options = values.size();
  PW_RETURN_IF_ERROR(api->Call<&PJRT_Api::PJRT_TopologyDescription_Create>(&args));
  std::unique_ptr<Topology> made(new Topology(std::move(api), args.topology));
  PW_RETURN_IF_ERROR(made->ReadDescription());
  return made;
}

Topology::~Topology() {
  PJRT_TopologyDescription_Destroy_Args args{};
  args.topology = topology_;
  (void)api_->Call<&PJRT_Api::PJRT_TopologyDescription_Destroy>(&args);  // nothing to do about a failing destructor
}

Status Topology::ReadDescription() {
  PJRT_TopologyDescription_PlatformVersion_Args version{};
  version.topology = topology_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_TopologyDescription_PlatformVersion>(&version));
  platform_version_.assign(version.platform_version, version.platform_version_size);
  PJRT_TopologyDescription_GetDeviceDescriptions_Args get{};
  get.topology = topology_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_TopologyDescription_GetDeviceDescriptions>(&get));
  for (size_t i = 0; i < get.num_descriptions; ++i) {
    PJRT_DeviceDescription_Id_Args id{};
    id.device_description = get.descriptions[i];
    PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_DeviceDescription_Id>(&id));
    PJRT_DeviceDescription_Kind_Args kind{};
    kind.device_description = get.descriptions[i];
    PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_DeviceDescription_Kind>(&kind));
    devices_.push_back({id.id, std::string(kind.device_kind, kind.device_kind_size)});
  }
  return OkStatus();
}

Result<std::unique_ptr<Compiled>> Topology::Compile(std::string_view code, std::string_view format,
                                                    std::string_view options) const {
  PJRT_Program program{};
  program.struct_size = PjrtStructSize<PJRT_Program>::value;
  program.code = const_cast<char*>(code.data());  // an input here; the field serves outputs too
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  PJRT_Compile_Args args{};
  args.topology = topology_;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Compile>(&args));
  return std::make_unique<Compiled>(api_, args.executable);
}

}  // namespace pathways::pjrt
