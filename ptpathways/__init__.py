"""One Python process, an unmodified PyTorch loop, the devices of many hosts.

    import ptpathways as pw

    pw.init(hosts=1, devices_per_host=4)
    model, optimizer, loader = pw.prepare(model, optimizer, loader)

Importing this package is cheap: torch and PyTorch/XLA are imported by the first name that needs them.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ptpathways.core import (
    AlreadyInitialized,
    CompileFailed,
    ConnectionFailed,
    DeadlineExceeded,
    HostLost,
    InvalidOption,
    NotInitialized,
    NotOneIsland,
    Options,
    OutOfDeviceMemory,
    PathwaysError,
    PluginNotFound,
    RuntimeAlreadyStarted,
    VersionMismatch,
    __version__,
)

if TYPE_CHECKING:
    from ptpathways.frontend import (
        Cluster,
        WaitStats,
        cluster,
        device,
        devices,
        init,
        shutdown,
        step,
        transfer,
        wait,
        wait_stats,
    )
    from ptpathways.train import prepare

# PyTorch would run every traced operation a second time on meta tensors, only to check itself. Without that, tracing
# is 1.6 to 3 times faster and means the same. torch reads this once, at the first operation that it traces, so this
# works whether torch has been imported or not.
os.environ.setdefault("TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE", "1")

__all__ = [
    "AlreadyInitialized",
    "Cluster",
    "CompileFailed",
    "ConnectionFailed",
    "DeadlineExceeded",
    "HostLost",
    "InvalidOption",
    "NotInitialized",
    "NotOneIsland",
    "Options",
    "OutOfDeviceMemory",
    "PathwaysError",
    "PluginNotFound",
    "RuntimeAlreadyStarted",
    "VersionMismatch",
    "WaitStats",
    "__version__",
    "cluster",
    "device",
    "devices",
    "init",
    "prepare",
    "shutdown",
    "step",
    "transfer",
    "wait",
    "wait_stats",
]

_ROOMS = {
    "Cluster": "ptpathways.frontend",
    "WaitStats": "ptpathways.frontend",
    "cluster": "ptpathways.frontend",
    "device": "ptpathways.frontend",
    "devices": "ptpathways.frontend",
    "init": "ptpathways.frontend",
    "prepare": "ptpathways.train",
    "shutdown": "ptpathways.frontend",
    "step": "ptpathways.frontend",
    "transfer": "ptpathways.frontend",
    "wait": "ptpathways.frontend",
    "wait_stats": "ptpathways.frontend",
}


def __getattr__(name: str) -> Any:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
