"""The one door to the C++ extension.

Importing this room loads nothing, so that tools can say what is wrong with an installation; the first use of a name
of the extension loads libzmq and the extension and checks their versions (see ``load``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptpathways.native._errors import explain_deadlines, translate, translate_of_torch, translated
from ptpathways.native._load import (
    PROTOCOL_VERSION,
    ZMQ_VARIABLE,
    NativeUnavailable,
    find_extension,
    find_zmq,
    load,
)

if TYPE_CHECKING:
    from ptpathways.native._native import (
        Buffer,
        BufferCell,
        CollectiveGroup,
        Controller,
        DeviceValue,
        FileOperation,
        Function,
        Guards,
        HostDict,
        NativeError,
        Program,
        Question,
        Replay,
        Session,
        SimulatedCluster,
        SimulatedTrace,
        SliceDict,
        Standby,
        TransferStats,
        WaitStats,
        account_fetches_of_this_thread,
        adopt_buffer,
        adopt_next_uploads,
        annotate_hlo,
        announce_values,
        asked_cells,
        attach_clients,
        bind_device,
        clean_up_dead_shared_memory,
        clean_up_shared_memory,
        close_pipeline,
        crc32c,
        digest,
        feed,
        keys_of_role,
        library_path,
        live_cells,
        load_values,
        machine_token,
        mint_pipeline,
        open_pipeline,
        owning_tensors,
        owns_its_tensor,
        protocol_version,
        run_worker,
        save_values,
        set_compile_listener,
        set_source_locator,
        set_upload_layout,
        start_declaring,
        start_recording,
        stop_declaring,
        stop_recording,
        transfer,
        unbind_device,
        value_of_buffer,
        waits_under_way,
        watch_interrupts,
    )

__all__ = [
    "PROTOCOL_VERSION",
    "ZMQ_VARIABLE",
    "Buffer",
    "BufferCell",
    "CollectiveGroup",
    "Controller",
    "DeviceValue",
    "FileOperation",
    "Function",
    "Guards",
    "HostDict",
    "NativeError",
    "NativeUnavailable",
    "Program",
    "Question",
    "Replay",
    "Session",
    "SimulatedCluster",
    "SimulatedTrace",
    "SliceDict",
    "Standby",
    "TransferStats",
    "WaitStats",
    "account_fetches_of_this_thread",
    "adopt_buffer",
    "adopt_next_uploads",
    "annotate_hlo",
    "announce_values",
    "asked_cells",
    "attach_clients",
    "bind_device",
    "clean_up_dead_shared_memory",
    "clean_up_shared_memory",
    "close_pipeline",
    "crc32c",
    "digest",
    "explain_deadlines",
    "feed",
    "find_extension",
    "find_zmq",
    "keys_of_role",
    "library_path",
    "live_cells",
    "load",
    "load_values",
    "machine_token",
    "mint_pipeline",
    "open_pipeline",
    "owning_tensors",
    "owns_its_tensor",
    "protocol_version",
    "run_worker",
    "save_values",
    "set_compile_listener",
    "set_source_locator",
    "set_upload_layout",
    "start_declaring",
    "start_recording",
    "stop_declaring",
    "stop_recording",
    "transfer",
    "translate",
    "translate_of_torch",
    "translated",
    "unbind_device",
    "value_of_buffer",
    "waits_under_way",
    "watch_interrupts",
]

_TYPES_ONLY = frozenset({"HostDict", "SliceDict", "TransferStats", "WaitStats"})


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _TYPES_ONLY:
        return dict
    value = getattr(load(), name)
    globals()[name] = value
    return value
