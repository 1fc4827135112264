#include "csrc/pjrt/executable.h"

#include <utility>

#include "csrc/pjrt/client.h"

namespace pathways::pjrt {
namespace {

// Pointer tables of one Execute call, kept by the thread so that a steady state does not allocate.
struct Scratch {
  std::vector<PJRT_Buffer*> arguments;
  std::vector<PJRT_Buffer* const*> argument_rows;
  std::vector<PJRT_Buffer*> outputs;
  std::vector<PJRT_Buffer**> output_rows;
  std::vector<PJRT_Event*> events;
};

}  // namespace

Result<std::unique_ptr<Executable>> Executable::Adopt(std::shared_ptr<Client> client, PJRT_LoadedExecutable* loaded) {
  std::unique_ptr<Executable> executable(new Executable(std::move(client), loaded));
  PW_RETURN_IF_ERROR(executable->ReadDescription());
  return executable;
}

Executable::~Executable() {
  compiled_.reset();
  PJRT_LoadedExecutable_Destroy_Args args{};
  args.executable = loaded_;
  (void)client_->api()->Call<&PJRT_Api::PJRT_LoadedExecutable_Destroy>(&args);
}

Status Executable::ReadDescription() {
  const Api& api = *client_->api();
  PJRT_LoadedExecutable_GetExecutable_Args get{};
  get.loaded_executable = loaded_;
  PW_RETURN_IF_ERROR(api.Call<&PJRT_Api::PJRT_LoadedExecutable_GetExecutable>(&get));
  compiled_.emplace(client_->api(), get.executable);
  PW_ASSIGN_OR_RETURN(name_, compiled_->Name());
  PW_ASSIGN_OR_RETURN(num_replicas_, compiled_->NumReplicas());
  PW_ASSIGN_OR_RETURN(num_partitions_, compiled_->NumPartitions());

  PJRT_LoadedExecutable_AddressableDevices_Args devices{};
  devices.executable = loaded_;
  PW_RETURN_IF_ERROR(api.Call<&PJRT_Api::PJRT_LoadedExecutable_AddressableDevices>(&devices));
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    const int index = client_->IndexOfRawDevice(devices.addressable_devices[i]);
    if (index < 0) return Internal("expected the executable " + name_ + " on this client's devices, got another");
    devices_.push_back(index);
  }
  return ReadOutputTypes();
}

Status Executable::ReadOutputTypes() {
  const Api& api = *client_->api();
  PJRT_Executable_OutputElementTypes_Args types{};
  types.executable = compiled_->raw();
  PW_RETURN_IF_ERROR(api.Call<&PJRT_Api::PJRT_Executable_OutputElementTypes>(&types));
  PJRT_Executable_OutputDimensions_Args dims{};
  dims.executable = compiled_->raw();
  PW_RETURN_IF_ERROR(api.Call<&PJRT_Api::PJRT_Executable_OutputDimensions>(&dims));
  if (types.num_output_types != dims.num_outputs) {
    return Internal("expected as many output types as output shapes from the plugin, got " +
                    std::to_string(types.num_output_types) + " and " + std::to_string(dims.num_outputs));
  }
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < dims.num_outputs; ++i) {
    const auto number = static_cast<uint32_t>(types.output_types[i]);
    auto type = std::make_shared<TensorType>();
    if (number <= UINT8_MAX && DTypeBytes(static_cast<DType>(number)) > 0) type->dtype = static_cast<DType>(number);
    type->dims.assign(next, next + dims.dim_sizes[i]);
    next += dims.dim_sizes[i];
    PW_RETURN_IF_ERROR(type->Validate().WithPrefix("output " + std::to_string(i) + " of " + name_));
    output_types_.push_back(std::move(type));
  }
  return OkStatus();
}

Status Executable::CheckArgs(const ExecuteArgs& args) const {
  const size_t rows = devices_.empty() ? 1 : devices_.size();
  if (args.arguments.size() != rows) {
    return InvalidArgument("expected arguments for " + std::to_string(rows) + " devices of " + name_ + ", got " +
                           std::to_string(args.arguments.size()));
  }
  if (devices_.empty()) {
    if (args.execute_device < 0) {
      return InvalidArgument("expected execute_device for the portable executable " + name_ + ", got none");
    }
    PW_RETURN_IF_ERROR(client_->CheckDevice(args.execute_device));
  } else if (args.execute_device >= 0 && (rows > 1 || args.execute_device != devices_[0])) {
    return InvalidArgument("expected no execute_device for " + name_ + ", which has its own devices, got " +
                           std::to_string(args.execute_device));
  }
  for (const auto& row : args.arguments) {
    if (row.size() != args.arguments[0].size()) {
      return InvalidArgument("expected equally many arguments on every device of " + name_ + ", got " +
                             std::to_string(args.arguments[0].size()) + " and " + std::to_string(row.size()));
    }
    for (const Buffer* buffer : row) {
      if (buffer == nullptr || !buffer->valid()) return InvalidArgument("expected a buffer per argument, got none");
    }
  }
  return OkStatus();
}

Status Executable::Execute(const ExecuteArgs& args, ExecuteOutputs* outputs) const {
  PW_RETURN_IF_ERROR(CheckArgs(args));
  const size_t rows = args.arguments.size();
  const size_t columns = args.arguments[0].size();
  const size_t results = output_types_.size();
  thread_local Scratch scratch;
  scratch.arguments.clear();
  scratch.arguments.reserve(rows * columns);
  scratch.argument_rows.resize(rows);
  scratch.outputs.assign(rows * results, nullptr);
  scratch.output_rows.resize(rows);
  scratch.events.assign(rows, nullptr);
  for (size_t row = 0; row < rows; ++row) {
    for (const Buffer* buffer : args.arguments[row]) scratch.arguments.push_back(buffer->raw());
    scratch.argument_rows[row] = scratch.arguments.data() + row * columns;
    scratch.output_rows[row] = scratch.outputs.data() + row * results;
  }

  PJRT_ExecuteOptions options{};
  options.struct_size = PjrtStructSize<PJRT_ExecuteOptions>::value;
  options.launch_id = args.launch_id;
  options.non_donatable_input_indices = args.non_donatable.data();
  options.num_non_donatable_input_indices = args.non_donatable.size();
  PJRT_LoadedExecutable_Execute_Args call{};
  call.executable = loaded_;
  call.options = &options;
  call.argument_lists = scratch.argument_rows.data();
  call.num_devices = rows;
  call.num_args = columns;
  call.output_lists = scratch.output_rows.data();
  call.device_complete_events = scratch.events.data();
  if (devices_.empty()) call.execute_device = client_->raw_device(args.execute_device);
  PW_RETURN_IF_ERROR(client_->api()->Call<&PJRT_Api::PJRT_LoadedExecutable_Execute>(&call));

  outputs->buffers.resize(rows);
  outputs->done.clear();
  for (size_t row = 0; row < rows; ++row) {
    const int device = devices_.empty() ? args.execute_device : devices_[row];
    std::vector<Buffer>& buffers = outputs->buffers[row];
    buffers.clear();
    for (size_t i = 0; i < results; ++i) {
      buffers.emplace_back(client_, scratch.output_rows[row][i], output_types_[i], device);
    }
    outputs->done.emplace_back(client_->api(), scratch.events[row]);
  }
  return OkStatus();
}

Result<std::string> Executable::Fingerprint() const {
  Result<std::string> fingerprint = compiled_->Fingerprint();
  if (fingerprint.ok()) return fingerprint;
  PJRT_LoadedExecutable_Fingerprint_Args loaded{};  // older plugins have only this one
  loaded.executable = loaded_;
  if (!client_->api()->Call<&PJRT_Api::PJRT_LoadedExecutable_Fingerprint>(&loaded).ok()) return fingerprint.status();
  return std::string(loaded.executable_fingerprint, loaded.executable_fingerprint_size);
}

}  // namespace pathways::pjrt
