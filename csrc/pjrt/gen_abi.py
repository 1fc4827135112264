"""Writes our C++ declarations of the PJRT C API from the ctypes tables of the package pypjrt.

The tables carry names, order, offsets and sizes of every struct, and the enums; they do not carry what a pointer points
to. The rules below add that from the public header's conventions (openxla/xla, xla/pjrt/c/pjrt_c_api.h); a pointer no
rule knows stays ``void*``. Rules change types only, never layout: ``pjrt_abi_check.h`` asserts every size and offset.

Usage: ``python gen_abi.py OUTPUT_DIR`` writes ``pjrt_abi.h`` and ``pjrt_abi_check.h`` there, only where changed.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pypjrt._abi import pjrt_0_114 as tables

SCALARS: dict[str, str] = {
    "c_ulong": "size_t",
    "c_long": "int64_t",
    "c_int": "int",
    "c_uint": "uint32_t",
    "c_bool": "bool",
    "c_float": "float",
    "c_void_p": "void*",
}

# Types whose insides only the plugin knows.
OPAQUE: tuple[str, ...] = (
    "PJRT_AsyncHostToDeviceTransferManager",
    "PJRT_AsyncTrackingEvent",
    "PJRT_Buffer",
    "PJRT_Client",
    "PJRT_CopyToDeviceStream",
    "PJRT_Device",
    "PJRT_DeviceAttributes",
    "PJRT_DeviceDescription",
    "PJRT_Event",
    "PJRT_Executable",
    "PJRT_ExecuteContext",
    "PJRT_FulfillAliasBufferCallback",
    "PJRT_Layouts_MemoryLayout",
    "PJRT_Layouts_SerializedLayout",
    "PJRT_LoadedExecutable",
    "PJRT_MultiSlice_Config",
    "PJRT_SerializedCompileOptions",
    "PJRT_SerializedDeviceAssignment",
    "PJRT_SerializedExecutable",
    "PJRT_SerializedTopology",
    "PJRT_TopologyDescription",
    "XLA_FFI_Error",
    "XLA_FFI_ExecutionContext",
    "XLA_FFI_Future",
    "XLA_FFI_InternalApi",
)

# Functions that return nothing; all others return PJRT_Error* (XLA_FFI_Error* in the FFI).
RETURN_VOID: frozenset[str] = frozenset(
    {"PJRT_Error_Destroy", "PJRT_Error_Message", "XLA_FFI_Error_GetMessage", "XLA_FFI_Error_Destroy"}
)

# "Struct.field" -> C++ type. Looked up before NAMES.
FIELDS: dict[str, str] = {
    "PJRT_Extension_Base.type": "PJRT_Extension_Type",
    "PJRT_Extension_Base.next": "PJRT_Extension_Base*",
    "PJRT_NamedValue.type": "PJRT_NamedValue_Type",
    "PJRT_Buffer_MemoryLayout.type": "PJRT_Buffer_MemoryLayout_Type",
    "PJRT_Buffer_ElementType_Args.type": "PJRT_Buffer_Type",
    "PJRT_Client_BufferFromHostBuffer_Args.type": "PJRT_Buffer_Type",
    "PJRT_Client_BufferFromHostBuffer_Args.data": "const void*",
    "PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args.type": "PJRT_Buffer_Type",
    "PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args.type": "PJRT_Buffer_Type",
    "PJRT_Layouts_MemoryLayout_Destroy_Args.layout": "PJRT_Layouts_MemoryLayout*",
    "PJRT_Layouts_MemoryLayout_Serialize_Args.layout": "PJRT_Layouts_MemoryLayout*",
    "PJRT_Layouts_MemoryLayout_Serialize_Args.serialized_layout_deleter": "void (*{})(PJRT_Layouts_SerializedLayout*)",
    "PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args.layout": "PJRT_Layouts_MemoryLayout*",
    "PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args.layout": "PJRT_Layouts_MemoryLayout*",
    "PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args.layout": "PJRT_Layouts_MemoryLayout*",
    "PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args.layouts": "PJRT_Layouts_MemoryLayout**",
    "PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args.layouts": "PJRT_Layouts_MemoryLayout**",
    "PJRT_AsyncHostToDeviceTransferManager_TransferData_Args.data": "const void*",
    "PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args.transfer_metadata": "const PJRT_NamedValue*",
    "PJRT_Client_Compile_Args.program": "const PJRT_Program*",
    "PJRT_Compile_Args.program": "const PJRT_Program*",
    "PJRT_Compile_Args.topology": "const PJRT_TopologyDescription*",
    "PJRT_Client_Compile_Args.executable": "PJRT_LoadedExecutable*",
    "PJRT_Client_DefaultDeviceAssignment_Args.default_assignment": "int*",
    "PJRT_Event_OnReady_Args.callback": "PJRT_Event_OnReadyCallback",
    "PJRT_LoadedExecutable_Execute_Args.options": "PJRT_ExecuteOptions*",
    "PJRT_LoadedExecutable_Execute_Args.argument_lists": "PJRT_Buffer* const* const*",
    "PJRT_LoadedExecutable_Execute_Args.output_lists": "PJRT_Buffer** const*",
    "PJRT_LoadedExecutable_Execute_Args.device_complete_events": "PJRT_Event**",
    "PJRT_LoadedExecutable_GetExecutable_Args.executable": "PJRT_Executable*",
    "PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args.addressable_device_logical_ids": "void*",
    "PJRT_Executable_Serialize_Args.serialized_executable": "PJRT_SerializedExecutable*",
    "PJRT_Executable_Serialize_Args.serialized_executable_deleter": "void (*{})(PJRT_SerializedExecutable*)",
    "PJRT_Executable_GetCompileOptions_Args.serialized_compile_options": "PJRT_SerializedCompileOptions*",
    "PJRT_Executable_GetCompileOptions_Args.serialized_compile_options_deleter": (
        "void (*{})(PJRT_SerializedCompileOptions*)"
    ),
    "PJRT_LoadedExecutable_GetDeviceAssignment_Args.serialized_device_assignment": "PJRT_SerializedDeviceAssignment*",
    "PJRT_LoadedExecutable_GetDeviceAssignment_Args.serialized_device_assignment_deleter": (
        "void (*{})(PJRT_SerializedDeviceAssignment*)"
    ),
    "PJRT_TopologyDescription_Serialize_Args.serialized_topology": "PJRT_SerializedTopology*",
    "PJRT_TopologyDescription_Serialize_Args.serialized_topology_deleter": "void (*{})(PJRT_SerializedTopology*)",
    "PJRT_Client_CreateViewOfDeviceBuffer_Args.on_delete_callback": "void (*{})(void*, void*)",
    "PJRT_Executable_OutputElementTypes_Args.output_types": "PJRT_Buffer_Type*",
    "PJRT_Executable_OutputDimensions_Args.dims": "const int64_t*",
    "PJRT_Device_GetAttributes_Args.device_attributes": "PJRT_DeviceAttributes*",
    "PJRT_Device_GetAttributes_Args.attributes_deleter": "void (*{})(PJRT_DeviceAttributes*)",
    "PJRT_Program.code": "char*",
    "PJRT_AsyncTrackingEvent_Destroy_Args.event": "PJRT_AsyncTrackingEvent*",
    "PJRT_Device_CreateAsyncTrackingEvent_Args.event": "PJRT_AsyncTrackingEvent*",
    "PJRT_Executable_OutputMemoryKinds_Args.memory_kinds": "const char* const*",
    "PJRT_Executable_ParameterMemoryKinds_Args.memory_kinds": "const char* const*",
    "PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args.device_memory_ptr": "void*",
    "PJRT_Error.vtable": "const PJRT_Error_FunctionTable*",
    "PJRT_Error_FunctionTable.destroy": "void (*{})(PJRT_Error_Destroy_Args*)",
    "PJRT_Error_FunctionTable.message": "void (*{})(PJRT_Error_Message_Args*)",
    "PJRT_Error_FunctionTable.get_code": "PJRT_Error* (*{})(PJRT_Error_GetCode_Args*)",
    "PJRT_Error_FunctionTable.for_each_payload": "PJRT_Error* (*{})(PJRT_Error_ForEachPayload_Args*)",
    "PJRT_FFI_Extension.type_register": "PJRT_Error* (*{})(PJRT_FFI_Type_Register_Args*)",
    "PJRT_FFI_Extension.user_data_add": "PJRT_Error* (*{})(PJRT_FFI_UserData_Add_Args*)",
    "PJRT_FFI_Extension.register_handler": "PJRT_Error* (*{})(PJRT_FFI_Register_Handler_Args*)",
    "PJRT_FFI_Register_Handler_Args.handler": "void*",
    "XLA_FFI_Extension_Base.type": "XLA_FFI_Extension_Type",
    "XLA_FFI_Extension_Base.next": "XLA_FFI_Extension_Base*",
    "XLA_FFI_CallFrame.api": "const XLA_FFI_Api*",
    "XLA_FFI_CallFrame.stage": "XLA_FFI_ExecutionStage",
    "XLA_FFI_CallFrame.future": "XLA_FFI_Future*",
    "XLA_FFI_Api.internal_api": "const XLA_FFI_InternalApi*",
    "XLA_FFI_Args.types": "XLA_FFI_ArgType*",
    "XLA_FFI_Args.args": "void**",
    "XLA_FFI_Rets.types": "XLA_FFI_RetType*",
    "XLA_FFI_Rets.rets": "void**",
    "XLA_FFI_Attrs.types": "XLA_FFI_AttrType*",
    "XLA_FFI_Attrs.names": "XLA_FFI_ByteSpan**",
    "XLA_FFI_Attrs.attrs": "void**",
    "XLA_FFI_ByteSpan.ptr": "const char*",
    "XLA_FFI_Buffer.dims": "int64_t*",
    "XLA_FFI_Error_Create_Args.errc": "XLA_FFI_Error_Code",
    "XLA_FFI_State_Get_Args.stage": "XLA_FFI_ExecutionStage",
    "XLA_FFI_State_Set_Args.stage": "XLA_FFI_ExecutionStage",
    "XLA_FFI_State_Get_Args.type_id": "XLA_FFI_TypeId*",
    "XLA_FFI_State_Set_Args.type_id": "XLA_FFI_TypeId*",
    "XLA_FFI_ExecutionContext_Get_Args.type_id": "XLA_FFI_TypeId*",
    "XLA_FFI_Type_Register_Args.type_id": "XLA_FFI_TypeId*",
    "XLA_FFI_Type_Register_Args.type_info": "const XLA_FFI_TypeInfo*",
    "XLA_FFI_Metadata_Extension.metadata": "XLA_FFI_Metadata*",
    "XLA_FFI_ThreadPool_NumThreads_Args.num_threads": "int64_t*",
    "XLA_FFI_ThreadPool_Schedule_Args.task": "void (*{})(void*)",
    "XLA_FFI_TypeInfo.deleter": "void (*{})(void*)",
}

_CHARS = """
    compile_options debug_string description device_kind error_message executable_fingerprint executable_name format key
    kind message name overridden_serialized_compile_options platform_name platform_version serialized_bytes
    serialized_executable serialized_topology string_value target_name to_string topology_name type_name
"""

# Field name -> C++ type in every PJRT struct.
NAMES: dict[str, str] = {
    **dict.fromkeys(_CHARS.split(), "const char*"),
    **dict.fromkeys(["buffer", "src", "dst_buffer", "buffer_out", "out_buffer", "alias_buffer"], "PJRT_Buffer*"),
    **dict.fromkeys(["device", "dst_device", "device_out", "execute_device", "addressable_device"], "PJRT_Device*"),
    **dict.fromkeys(["devices", "addressable_devices"], "PJRT_Device* const*"),
    **dict.fromkeys(["memory", "dst_memory"], "PJRT_Memory*"),
    **dict.fromkeys(["memories", "addressable_memories"], "PJRT_Memory* const*"),
    **dict.fromkeys(
        ["event", "done_with_h2d_transfer", "done_with_host_buffer", "transfer_complete"],
        "PJRT_Event*",
    ),
    **dict.fromkeys(["element_type", "shape_element_type"], "PJRT_Buffer_Type"),
    **dict.fromkeys(["error_code", "code", "status_code"], "PJRT_Error_Code"),
    **dict.fromkeys(
        [
            "dims",
            "shape_dims",
            "byte_strides",
            "unpadded_dims",
            "minor_to_major",
            "tile_dims",
            "int64_array_value",
            "non_donatable_input_indices",
        ],
        "const int64_t*",
    ),
    **dict.fromkeys(
        ["dynamic_dim_indices", "tile_dim_sizes", "dim_sizes", "memory_kind_sizes"],
        "const size_t*",
    ),
    **dict.fromkeys(["attributes", "properties", "create_options"], "const PJRT_NamedValue*"),
    **dict.fromkeys(["host_layout", "device_layout", "layout", "shape_layout"], "PJRT_Buffer_MemoryLayout*"),
    "client": "PJRT_Client*",
    "context": "PJRT_ExecuteContext*",
    "call_location": "const char*",
    "descriptions": "PJRT_DeviceDescription* const*",
    "device_description": "PJRT_DeviceDescription*",
    "device_layouts": "PJRT_Buffer_MemoryLayout**",
    "error": "PJRT_Error*",
    "executable": "PJRT_Executable*",
    "extension_start": "PJRT_Extension_Base*",
    "fulfill_alias_buffer_cb": "PJRT_FulfillAliasBufferCallback*",
    "host_buffer_semantics": "PJRT_HostBufferSemantics",
    "loaded_executable": "PJRT_LoadedExecutable*",
    "program": "PJRT_Program*",
    "shape_specs": "PJRT_ShapeSpec*",
    "topology": "PJRT_TopologyDescription*",
    "transfer_manager": "PJRT_AsyncHostToDeviceTransferManager*",
}

FFI_NAMES: dict[str, str] = {
    "extension_start": "XLA_FFI_Extension_Base*",
    "ctx": "XLA_FFI_ExecutionContext*",
    "dtype": "XLA_FFI_DataType",
    "error": "XLA_FFI_Error*",
    "future": "XLA_FFI_Future*",
    "message": "const char*",
}

PREAMBLE = """\
// Generated by csrc/pjrt/gen_abi.py; edits are lost.
//
// Our C++ declarations of the PJRT C API {major}.{minor} and the XLA FFI {ffi_major}.{ffi_minor}.
// Names are the public ABI's.
#ifndef PTPATHWAYS_GENERATED_PJRT_ABI_H_
#define PTPATHWAYS_GENERATED_PJRT_ABI_H_

#include <cstddef>
#include <cstdint>

#define PJRT_API_MAJOR {major}
#define PJRT_API_MINOR {minor}
#define XLA_FFI_API_MAJOR {ffi_major}
#define XLA_FFI_API_MINOR {ffi_minor}

extern "C" {{

"""


def structs(module: ModuleType) -> Iterator[type[Any]]:
    """The public structs in declaration order: what a struct embeds comes before it."""
    for name, value in vars(module).items():
        is_struct = isinstance(value, type) and issubclass(value, ctypes.Structure)
        if is_struct and name.startswith(("PJRT_", "XLA_FFI_")):
            yield value


def enums(module: ModuleType) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Enums with their constants, from the tables' source, which groups them under a comment each."""
    current: str | None = None
    rows: list[tuple[str, int]] = []
    for line in inspect.getsource(module).splitlines():
        start = re.fullmatch(r"# enum (\w+)", line)
        row = re.fullmatch(r"(\w+) = (-?\d+)", line)
        if start:
            current, rows = start.group(1), []
        elif row and current:
            rows.append((row.group(1), int(row.group(2))))
        elif current:
            if rows and not current.endswith("_STRUCT_SIZE") and current.startswith(("PJRT_", "XLA_FFI_")):
                yield current, rows
            current = None


def function_pointer(name: str, slot: str) -> str:
    """The declarator of the table slot `slot` for the function `name`."""
    error = "XLA_FFI_Error" if name.startswith("XLA_FFI_") else "PJRT_Error"
    returns = "void" if name in RETURN_VOID else f"{error}*"
    return f"{returns} (*{slot})({name}_Args*)"


def declarator(owner: str, field: str, ctype: type[Any]) -> str:
    """One field as C++, with a typed pointer or enum where a rule names one."""
    if issubclass(ctype, ctypes.Array):
        return f"{SCALARS[ctype._type_.__name__]} {field}[{ctype._length_}]"
    if issubclass(ctype, ctypes.Union):
        inner = " ".join(f"{declarator(owner, field[0], field[1])};" for field in ctype._fields_)
        return f"union {{ {inner} }}"
    base = SCALARS.get(ctype.__name__, ctype.__name__)
    if base not in ("void*", "uint32_t"):
        return f"{base} {field}"
    rules = FFI_NAMES if owner.startswith("XLA_FFI_") else NAMES
    chosen = FIELDS.get(f"{owner}.{field}") or rules.get(field, base)
    if owner.startswith("PJRT_LoadedExecutable_") and chosen == "PJRT_Executable*" and field == "executable":
        chosen = FIELDS.get(f"{owner}.{field}", "PJRT_LoadedExecutable*")
    if owner.startswith("PJRT_CopyToDeviceStream_") and field == "stream":
        chosen = "PJRT_CopyToDeviceStream*"
    if owner in ("PJRT_Api", "XLA_FFI_Api") and hasattr(tables, f"{field}_Args"):
        return function_pointer(field, field)
    # A pointer stays a pointer and a number stays a number: a rule for the other kind does not apply.
    if ("*" in chosen or chosen.endswith("Callback")) != (base == "void*"):
        chosen = base
    return chosen.format(field) if "{}" in chosen else f"{chosen} {field}"


def struct_size(cls: type[Any]) -> int:
    """What callers put in struct_size: up to the end of the last field, without tail padding."""
    listed = getattr(tables, f"{cls.__name__}_STRUCT_SIZE", None)
    if isinstance(listed, int):
        return listed
    last = getattr(cls, cls._fields_[-1][0])
    return int(last.offset) + int(last.size)


def abi_header() -> str:
    """The text of pjrt_abi.h."""
    out = [
        PREAMBLE.format(
            major=tables.PJRT_API_MAJOR,
            minor=tables.PJRT_API_MINOR,
            ffi_major=tables.XLA_FFI_API_MAJOR,
            ffi_minor=tables.XLA_FFI_API_MINOR,
        )
    ]
    for name, rows in enums(tables):
        constants = "".join(f"  {constant} = {value},\n" for constant, value in rows)
        out.append(f"enum {name} : uint32_t {{\n{constants}}};\n\n")
    out += [f"struct {name};\n" for name in OPAQUE]
    out += [f"struct {cls.__name__};\n" for cls in structs(tables)]
    out.append("\ntypedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error* error, void* user_arg);\n\n")
    for cls in structs(tables):
        fields = "".join(f"  {declarator(cls.__name__, name, kind)};\n" for name, kind, *_ in cls._fields_)
        out.append(f"struct {cls.__name__} {{\n{fields}}};\n\n")
    out.append('}  // extern "C"\n\n')
    out.append("// What struct_size must say: the end of the last field, without padding.\n")
    out.append("template <typename Struct>\nstruct PjrtStructSize;\n")
    for cls in structs(tables):
        if cls._fields_[0][0] in ("struct_size", "base", "extension_base"):
            size = struct_size(cls)
            out.append(
                f"template <>\nstruct PjrtStructSize<{cls.__name__}> {{ static constexpr size_t value = {size}; }};\n"
            )
    out.append("\n// The functions of PJRT_Api in order; the first is at kPjrtFirstSlotOffset.\n")
    out.append(f"inline constexpr size_t kPjrtFirstSlotOffset = {tables.VTABLE_OFFSET};\n")
    names = "".join(f'    "{name}",\n' for name in tables.FUNCTIONS)
    out.append(f"inline constexpr const char* kPjrtSlotNames[] = {{\n{names}}};\n\n")
    out.append("// Field numbers of the compile options' protos.\nnamespace pathways::pjrt::fields {\n")
    for message, numbers in tables.PROTO_FIELDS.items():
        rows_text = "".join(f"inline constexpr uint32_t {field} = {number};\n" for field, number in numbers.items())
        out.append(f"namespace {message} {{\n{rows_text}}}  // namespace {message}\n")
    out.append("}  // namespace pathways::pjrt::fields\n\n#endif  // PTPATHWAYS_GENERATED_PJRT_ABI_H_\n")
    return "".join(out)


def check_header() -> str:
    """The text of pjrt_abi_check.h: every size and offset asserted, to be included by one source file."""
    out = [
        "// Generated by csrc/pjrt/gen_abi.py; edits are lost.\n//\n"
        "// Sizes and offsets of pjrt_abi.h against the tables.\n",
        "#ifndef PTPATHWAYS_GENERATED_PJRT_ABI_CHECK_H_\n#define PTPATHWAYS_GENERATED_PJRT_ABI_CHECK_H_\n\n",
        '#include "csrc_generated/pjrt_abi.h"\n\n',
    ]
    for cls in structs(tables):
        name = cls.__name__
        out.append(f'static_assert(sizeof({name}) == {ctypes.sizeof(cls)}, "sizeof {name}");\n')
        anonymous = getattr(cls, "_anonymous_", ())
        for field, kind, *_ in cls._fields_:
            probe = kind._fields_[0][0] if field in anonymous else field
            offset = getattr(cls, field).offset
            out.append(f'static_assert(offsetof({name}, {probe}) == {offset}, "offset of {name}.{probe}");\n')
    for index, function in enumerate(tables.FUNCTIONS):
        offset = tables.VTABLE_OFFSET + 8 * index
        out.append(f'static_assert(offsetof(PJRT_Api, {function}) == {offset}, "slot of {function}");\n')
    out.append("\n#endif  // PTPATHWAYS_GENERATED_PJRT_ABI_CHECK_H_\n")
    return "".join(out)


def write_if_changed(path: Path, text: str) -> None:
    """Keeps the file's time when nothing changed, so that nothing is recompiled for it."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    """Writes both headers into the directory given on the command line."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(f"expected one argument, the output directory; got {sys.argv[1:]}")
    directory = Path(sys.argv[1])
    write_if_changed(directory / "pjrt_abi.h", abi_header())
    write_if_changed(directory / "pjrt_abi_check.h", check_header())


if __name__ == "__main__":
    main()
