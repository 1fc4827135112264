#include "csrc/pjrt/client.h"

namespace pathways::pjrt {
Result<std::shared_ptr<Client>> Client::Create(std::shared_ptr<const Api> api, const NamedValues& options,
                                               std::shared_ptr<KeyValueStore> store) {
  const std::vector<PJRT_NamedValue> values = ToNamedValues(options);
  PJRT_Client_Create_Args args{};
  args.create_options = values.data();
  args.num_options = values.size();
  if (store != nullptr) SetCallbacks(store.get(), &args);
  PW_RETURN_IF_ERROR(
      api->Call<&PJRT_Api::PJRT_Client_Create>(&args).WithPrefix("creating a client of " + api->origin()));
  std::shared_ptr<Client> client(new Client(std::move(api), args.client, std::move(store)));
  PW_RETURN_IF_ERROR(client->ReadDescription());
  return client;
}

Client::~Client() {
  PJRT_Client_Destroy_Args args{};
  args.client = client_;
  (void)api_->Call<&PJRT_Api::PJRT_Client_Destroy>(&args);  // nothing to do about a failing destructor
}

Status Client::ReadDescription() {
  PJRT_Client_PlatformName_Args name{};
  name.client = client_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Client_PlatformName>(&name));
  platform_name_.assign(name.platform_name, name.platform_name_size);
  PJRT_Client_PlatformVersion_Args version{};
  version.client = client_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Client_PlatformVersion>(&version));
  platform_version_.assign(version.platform_version, version.platform_version_size);
  PJRT_Client_AddressableDevices_Args devices{};
  devices.client = client_;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Client_AddressableDevices>(&devices));
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    PW_RETURN_IF_ERROR(ReadDevice(devices.addressable_devices[i]));
  }
  if (devices_.empty()) {
    return FailedPrecondition("expected at least one device from " + api_->origin() + ", got none");
  }
  return OkStatus();
}

Status Client::ReadDevice(PJRT_Device* device) {
  DeviceInfo info;
  PJRT_Device_GetDescription_Args description{};
  description.device = device;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Device_GetDescription>(&description));
  PJRT_DeviceDescription_Id_Args id{};
  id.device_description = description.device_description;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_DeviceDescription_Id>(&id));
  info.id = id.id;
  PJRT_DeviceDescription_Kind_Args kind{};
  kind.device_description = description.device_description;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_DeviceDescription_Kind>(&kind));
  info.kind.assign(kind.device_kind, kind.device_kind_size);
  PJRT_DeviceDescription_DebugString_Args debug{};
  debug.device_description = description.device_description;
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_DeviceDescription_DebugString>(&debug));
  info.debug_string.assign(debug.debug_string, debug.debug_string_size);
  PJRT_Device_LocalHardwareId_Args hardware{};
  hardware.device = device;
  info.local_hardware_id =
      api_->Call<&PJRT_Api::PJRT_Device_LocalHardwareId>(&hardware).ok() ? hardware.local_hardware_id : -1;
  PJRT_Device_DefaultMemory_Args memory{};
  memory.device = device;
  const bool has_memory = api_->Call<&PJRT_Api::PJRT_Device_DefaultMemory>(&memory).ok();
  index_of_raw_.emplace(device, static_cast<int>(devices_.size()));
  devices_.push_back(std::move(info));
  raw_devices_.push_back(device);
  default_memories_.push_back(has_memory ? memory.memory : nullptr);
  return OkStatus();
}

int Client::IndexOfDeviceId(int id) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].id == id) return static_cast<int>(i);
  }
  return -1;
}

int Client::IndexOfRawDevice(const PJRT_Device* device) const {
  const auto found = index_of_raw_.find(device);
  return found == index_of_raw_.end() ? -1 : found->second;
}

Status Client::CheckDevice(int device) const {
  if (device >= 0 && static_cast<size_t>(device) < devices_.size()) return OkStatus();
  return InvalidArgument("expected a device index below " + std::to_string(devices_.size()) + ", got " +
                         std::to_string(device));
}

std::optional<MemoryStats> Client::GetMemoryStats(int device) const {
  if (!CheckDevice(device).ok()) return std::nullopt;
  PJRT_Device_MemoryStats_Args args{};
  args.device = raw_device(device);
  if (!api_->Call<&PJRT_Api::PJRT_Device_MemoryStats>(&args).ok()) return std::nullopt;
  MemoryStats stats;
  stats.bytes_in_use = args.bytes_in_use;
  if (args.peak_bytes_in_use_is_set) stats.peak_bytes = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) stats.limit_bytes = args.bytes_limit;
  return stats;
}

Result<std::unique_ptr<Executable>> Client::Compile(std::string_view code, std::string_view format,
                                                    std::string_view options) {
  if (format != "hlo" && format != "mlir") {
    return InvalidArgument("expected program format \"hlo\" or \"mlir\", got \"" + std::string(format) + "\"");
  }
  PJRT_Program program{};
  program.struct_size = PjrtStructSize<PJRT_Program>::value;
  program.code = const_cast<char*>(code.data());  // an input here; the field serves outputs too
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  PJRT_Client_Compile_Args args{};
  args.client = client_;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Client_Compile>(&args));
  return Executable::Adopt(shared_from_this(), args.executable);
}

Result<std::unique_ptr<Executable>> Client::Deserialize(std::string_view serialized, std::string_view options) {
  PJRT_Executable_DeserializeAndLoad_Args args{};
  args.client = client_;
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  args.overridden_serialized_compile_options = options.empty() ? nullptr : options.data();
  args.overridden_serialized_compile_options_size = options.size();
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Executable_DeserializeAndLoad>(&args));
  return Executable::Adopt(shared_from_this(), args.loaded_executable);
}

Result<Buffer> Client::BufferFromHost(const void* data, const TensorType& type, int device,
                                      std::function<void(Status)> done_with_data) {
  Status status = type.Validate();
  if (status.ok()) status = CheckDevice(device);
  PJRT_Client_BufferFromHostBuffer_Args args{};
  if (status.ok()) {
    args.client = client_;
    args.data = data;
    args.type = static_cast<PJRT_Buffer_Type>(type.dtype);
    args.dims = type.dims.data();
    args.num_dims = type.dims.size();
    args.host_buffer_semantics = done_with_data ? PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes
                                                : PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    args.device = raw_device(device);
    status = api_->Call<&PJRT_Api::PJRT_Client_BufferFromHostBuffer>(&args);
  }
  if (!status.ok()) {
    if (done_with_data) done_with_data(status);
    return status;
  }
  EventHandle done(api_, args.done_with_host_buffer);
  Buffer buffer(shared_from_this(), args.buffer, std::make_shared<const TensorType>(type), device);
  if (done_with_data) done.OnReady(std::move(done_with_data));
  return buffer;
}

Result<std::unique_ptr<AsyncBuffer>> Client::CreateAsyncBuffer(const TensorType& type, int device) {
  PW_RETURN_IF_ERROR(type.Validate());
  PW_RETURN_IF_ERROR(CheckDevice(device));
  PJRT_ShapeSpec spec{};
  spec.struct_size = PjrtStructSize<PJRT_ShapeSpec>::value;
  spec.dims = type.dims.data();
  spec.num_dims = type.dims.size();
  spec.element_type = static_cast<PJRT_Buffer_Type>(type.dtype);
  PJRT_Client_CreateBuffersForAsyncHostToDevice_Args args{};
  args.client = client_;
  args.shape_specs = &spec;
  args.num_shape_specs = 1;
  args.memory = raw_memory(device);
  PW_RETURN_IF_ERROR(api_->Call<&PJRT_Api::PJRT_Client_CreateBuffersForAsyncHostToDevice>(&args));
  return std::make_unique<AsyncBuffer>(shared_from_this(), args.transfer_manager,
                                       std::make_shared<const TensorType>(type), device);
}

bool Client::CanDmaMap() const {
  return api_->Has<&PJRT_Api::PJRT_Client_DmaMap>() && api_->Has<&PJRT_Api::PJRT_Client_DmaUnmap>();
}

Status Client::DmaMap(void* data, size_t size) {
  PJRT_Client_DmaMap_Args args{};
  args.client = client_;
  args.data = data;
  args.size = size;
  return api_->Call<&PJRT_Api::PJRT_Client_DmaMap>(&args);
}

Status Client::DmaUnmap(void* data) {
  PJRT_Client_DmaUnmap_Args args{};
  args.client = client_;
  args.data = data;
  return api_->Call<&PJRT_Api::PJRT_Client_DmaUnmap>(&args);
}

}  // namespace pathways::pjrt
