#include "csrc/plugin/api.h"

#include "csrc/plugin/entry.h"
#include "csrc/plugin/error.h"
#include "csrc/values/named_value.h"

namespace pathways::plugin {

Status Plugin_Initialize(PJRT_Plugin_Initialize_Args*) { return OkStatus(); }

// Versions that decide in which form callers send their programs: those that the oldest plugin of a worker we support
// reads. Newer callers write the older form.
Status Plugin_Attributes(PJRT_Plugin_Attributes_Args* args) {
  static const values::NamedValueList* const attributes = [] {
    auto* list = new values::NamedValueList;  // leaked: callers keep pointers to it
    list->Add("xla_version", int64_t{2});
    list->Add("stablehlo_current_version", std::vector<int64_t>{1, 10, 0});
    list->Add("stablehlo_minimum_version", std::vector<int64_t>{0, 9, 0});
    return list;
  }();
  args->attributes = attributes->data();
  args->num_attributes = attributes->size();
  return OkStatus();
}

static PJRT_Api MakeTable() {
  PJRT_Api api{};
  api.struct_size = sizeof(PJRT_Api);
  api.pjrt_api_version.struct_size = sizeof(PJRT_Api_Version);
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;

  api.PJRT_Error_Destroy = &Error_Destroy;
  api.PJRT_Error_Message = &Error_Message;
  api.PJRT_Error_GetCode = &Error_GetCode;
  api.PJRT_Error_ForEachPayload = &Error_ForEachPayload;

// Declares a slot's function, which nobody else calls, and puts it into the table. PLAIN: no object to act on. ACTS:
// the first field after the header is one. Both name the last field they need.
#define PUT(name, last, acts)            \
  Status name(PJRT_##name##_Args* args); \
  api.PJRT_##name = &Entry<"PJRT_" #name, &name, &PJRT_##name##_Args::last, acts>
#define PLAIN(name, last) PUT(name, last, false)
#define ACTS(name, last) PUT(name, last, true)
#define MISSING(name) api.PJRT_##name = &MissingEntry<"PJRT_" #name, PJRT_##name##_Args>

  PLAIN(Plugin_Initialize, extension_start);
  PLAIN(Plugin_Attributes, num_attributes);

  ACTS(Event_Destroy, event);
  ACTS(Event_IsReady, is_ready);
  ACTS(Event_Error, event);
  ACTS(Event_Await, event);
  ACTS(Event_OnReady, user_arg);
  PLAIN(Event_Create, event);
  ACTS(Event_Set, error_message_size);

  PLAIN(Client_Create, client);
  ACTS(Client_Destroy, client);
  ACTS(Client_PlatformName, platform_name_size);
  ACTS(Client_ProcessIndex, process_index);
  ACTS(Client_PlatformVersion, platform_version_size);
  ACTS(Client_Devices, num_devices);
  ACTS(Client_AddressableDevices, num_addressable_devices);
  ACTS(Client_LookupDevice, device);
  ACTS(Client_LookupAddressableDevice, addressable_device);
  ACTS(Client_AddressableMemories, num_addressable_memories);
  ACTS(Client_Compile, executable);
  ACTS(Client_DefaultDeviceAssignment, default_assignment);
  ACTS(Client_BufferFromHostBuffer, buffer);
  ACTS(Client_CreateUninitializedBuffer, buffer);
  ACTS(Client_CreateErrorBuffer, buffer);
  ACTS(Client_CreateBuffersForAsyncHostToDevice, transfer_manager);
  ACTS(Client_TopologyDescription, topology);
  ACTS(Client_UpdateGlobalProcessInfo, client);
  MISSING(Client_CreateViewOfDeviceBuffer);
  MISSING(Client_DmaMap);
  MISSING(Client_DmaUnmap);
  MISSING(Client_CreateAliasBuffer);
  MISSING(Client_FulfillAliasBuffer);
  MISSING(Client_Load);
  MISSING(Compile);

  ACTS(DeviceDescription_Id, id);
  ACTS(DeviceDescription_ProcessIndex, process_index);
  ACTS(DeviceDescription_Attributes, attributes);
  ACTS(DeviceDescription_Kind, device_kind_size);
  ACTS(DeviceDescription_DebugString, debug_string_size);
  ACTS(DeviceDescription_ToString, to_string_size);

  ACTS(Device_GetDescription, device_description);
  ACTS(Device_IsAddressable, is_addressable);
  ACTS(Device_LocalHardwareId, local_hardware_id);
  ACTS(Device_AddressableMemories, num_memories);
  ACTS(Device_DefaultMemory, memory);
  ACTS(Device_MemoryStats, bytes_in_use);
  ACTS(Device_GetAttributes, attributes_deleter);
  ACTS(Device_CreateAsyncTrackingEvent, event);
  ACTS(AsyncTrackingEvent_Destroy, event);
  ACTS(Device_PoisonExecution, poisoned);
  MISSING(Device_ClearMemoryStats);

  ACTS(Memory_Id, id);
  ACTS(Memory_Kind, kind_size);
  ACTS(Memory_Kind_Id, kind_id);
  ACTS(Memory_DebugString, debug_string_size);
  ACTS(Memory_ToString, to_string_size);
  ACTS(Memory_AddressableByDevices, num_devices);

  ACTS(Executable_Destroy, executable);
  ACTS(Executable_Name, executable_name_size);
  ACTS(Executable_NumReplicas, num_replicas);
  ACTS(Executable_NumPartitions, num_partitions);
  ACTS(Executable_NumOutputs, num_outputs);
  ACTS(Executable_SizeOfGeneratedCodeInBytes, size_in_bytes);
  ACTS(Executable_GetCostAnalysis, properties);
  ACTS(Executable_OutputMemoryKinds, memory_kind_sizes);
  ACTS(Executable_ParameterMemoryKinds, memory_kind_sizes);
  ACTS(Executable_OptimizedProgram, program);
  ACTS(Executable_Serialize, serialized_executable_deleter);
  ACTS(Executable_DeserializeAndLoad, loaded_executable);
  ACTS(Executable_OutputElementTypes, num_output_types);
  ACTS(Executable_OutputDimensions, dim_sizes);
  ACTS(Executable_Fingerprint, executable_fingerprint_size);
  ACTS(Executable_GetCompiledMemoryStats, temp_size_in_bytes);
  ACTS(Executable_GetCompileOptions, serialized_compile_options_deleter);

  ACTS(LoadedExecutable_Destroy, executable);
  ACTS(LoadedExecutable_GetExecutable, executable);
  ACTS(LoadedExecutable_AddressableDevices, num_addressable_devices);
  ACTS(LoadedExecutable_AddressableDeviceLogicalIds, num_addressable_device_logical_ids);
  ACTS(LoadedExecutable_Delete, executable);
  ACTS(LoadedExecutable_IsDeleted, is_deleted);
  ACTS(LoadedExecutable_Execute, device_complete_events);
  ACTS(LoadedExecutable_Fingerprint, executable_fingerprint_size);
  ACTS(LoadedExecutable_GetDeviceAssignment, serialized_device_assignment_deleter);
  PLAIN(ExecuteContext_Create, context);
  ACTS(ExecuteContext_Destroy, context);

  ACTS(Buffer_Destroy, buffer);
  ACTS(Buffer_ElementType, type);
  ACTS(Buffer_Dimensions, num_dims);
  ACTS(Buffer_UnpaddedDimensions, num_dims);
  ACTS(Buffer_DynamicDimensionIndices, num_dynamic_dims);
  ACTS(Buffer_GetMemoryLayout, layout);
  ACTS(Buffer_OnDeviceSizeInBytes, on_device_size_in_bytes);
  ACTS(Buffer_Device, device);
  ACTS(Buffer_Memory, memory);
  ACTS(Buffer_Delete, buffer);
  ACTS(Buffer_IsDeleted, is_deleted);
  ACTS(Buffer_CopyToDevice, dst_buffer);
  ACTS(Buffer_CopyToMemory, dst_buffer);
  ACTS(Buffer_ToHostBuffer, event);
  ACTS(Buffer_CopyRawToHost, event);
  ACTS(Buffer_IsOnCpu, is_on_cpu);
  ACTS(Buffer_ReadyEvent, event);
  ACTS(Buffer_UnsafePointer, buffer_pointer);
  ACTS(Buffer_IncreaseExternalReferenceCount, buffer);
  ACTS(Buffer_DecreaseExternalReferenceCount, buffer);
  ACTS(Buffer_OpaqueDeviceMemoryDataPointer, device_memory_ptr);
  MISSING(Buffer_CopyRawToHostFuture);
  MISSING(Buffer_DonateWithControlDependency);
  MISSING(Buffer_Bitcast);

  MISSING(CopyToDeviceStream_Destroy);
  MISSING(CopyToDeviceStream_AddChunk);
  MISSING(CopyToDeviceStream_TotalBytes);
  MISSING(CopyToDeviceStream_GranuleSize);
  MISSING(CopyToDeviceStream_CurrentBytes);

  PLAIN(TopologyDescription_Create, topology);
  ACTS(TopologyDescription_Destroy, topology);
  ACTS(TopologyDescription_PlatformName, platform_name_size);
  ACTS(TopologyDescription_PlatformVersion, platform_version_size);
  ACTS(TopologyDescription_GetDeviceDescriptions, num_descriptions);
  ACTS(TopologyDescription_Serialize, serialized_topology_deleter);
  ACTS(TopologyDescription_Attributes, num_attributes);
  ACTS(TopologyDescription_Fingerprint, fingerprint);
  MISSING(TopologyDescription_Deserialize);
  MISSING(TopologyDescription_MakeCanonicalShapeForMemorySpace);
  MISSING(TopologyDescription_GetMemorySpaceKindIds);

  ACTS(AsyncHostToDeviceTransferManager_Destroy, transfer_manager);
  ACTS(AsyncHostToDeviceTransferManager_TransferData, done_with_h2d_transfer);
  ACTS(AsyncHostToDeviceTransferManager_TransferLiteral, done_with_h2d_transfer);
  ACTS(AsyncHostToDeviceTransferManager_RetrieveBuffer, buffer_out);
  ACTS(AsyncHostToDeviceTransferManager_Device, device_out);
  ACTS(AsyncHostToDeviceTransferManager_BufferCount, buffer_count);
  ACTS(AsyncHostToDeviceTransferManager_BufferSize, buffer_size);
  ACTS(AsyncHostToDeviceTransferManager_SetBufferError, error_message_size);
  ACTS(AsyncHostToDeviceTransferManager_AddMetadata, transfer_manager);

#undef PUT
#undef PLAIN
#undef ACTS
#undef MISSING
  return api;
}

}  // namespace pathways::plugin

const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api table = pathways::plugin::MakeTable();
  return &table;
}
