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
    CacheWarning,
    CapturedTensor,
    CaptureMismatch,
    CheckpointError,
    CheckpointMismatch,
    CheckpointWarning,
    CompileFailed,
    ConcurrentUse,
    ConnectionFailed,
    DeadlineExceeded,
    DifferentSlices,
    HostLost,
    ImpureFunction,
    InputPipelineFailed,
    InvalidOption,
    InvalidProgram,
    InvalidSharding,
    ModelCannotBeCut,
    NonFinite,
    NotInitialized,
    NotOneIsland,
    Options,
    OutOfDeviceMemory,
    PathwaysError,
    PipelineError,
    PipelineWarning,
    PluginNotFound,
    RuntimeAlreadyStarted,
    Simulated,
    SliceUnavailable,
    TooManyRecompiles,
    UntrainedParameters,
    UsedAfterDonation,
    VersionMismatch,
    WrongCluster,
    __version__,
)

if TYPE_CHECKING:
    from ptpathways import data, metrics, pipelines
    from ptpathways.checkpoint import Loaded, Save, load, save
    from ptpathways.frontend import (
        CapturedStep,
        CaptureWarning,
        Cluster,
        CompiledFunction,
        Future,
        IrregularFunctionWarning,
        Program,
        Recompile,
        RecompileWarning,
        VirtualSlice,
        WaitStats,
        WaitWarning,
        cluster,
        device,
        devices,
        function,
        get,
        init,
        manual_seed,
        program,
        put,
        recompiles,
        seed,
        shard,
        shutdown,
        step,
        trace,
        transfer,
        wait,
        wait_stats,
    )
    from ptpathways.metrics import MetricsWarning, Progress, log, progress
    from ptpathways.pipelines import Pipeline, pipeline
    from ptpathways.train import bucket, bucketed, prepare, watch

# PyTorch would run every traced operation a second time on meta tensors, only to check itself. Without that, tracing
# is 1.6 to 3 times faster and means the same. torch reads this once, at the first operation that it traces, so this
# works whether torch has been imported or not.
os.environ.setdefault("TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE", "1")

__all__ = [
    "AlreadyInitialized",
    "CacheWarning",
    "CaptureMismatch",
    "CaptureWarning",
    "CapturedStep",
    "CapturedTensor",
    "CheckpointError",
    "CheckpointMismatch",
    "CheckpointWarning",
    "Cluster",
    "CompileFailed",
    "CompiledFunction",
    "ConcurrentUse",
    "ConnectionFailed",
    "DeadlineExceeded",
    "DifferentSlices",
    "Future",
    "HostLost",
    "ImpureFunction",
    "InputPipelineFailed",
    "InvalidOption",
    "InvalidProgram",
    "InvalidSharding",
    "IrregularFunctionWarning",
    "Loaded",
    "MetricsWarning",
    "ModelCannotBeCut",
    "NonFinite",
    "NotInitialized",
    "NotOneIsland",
    "Options",
    "OutOfDeviceMemory",
    "PathwaysError",
    "Pipeline",
    "PipelineError",
    "PipelineWarning",
    "PluginNotFound",
    "Program",
    "Progress",
    "Recompile",
    "RecompileWarning",
    "RuntimeAlreadyStarted",
    "Save",
    "Simulated",
    "SliceUnavailable",
    "TooManyRecompiles",
    "UntrainedParameters",
    "UsedAfterDonation",
    "VersionMismatch",
    "VirtualSlice",
    "WaitStats",
    "WaitWarning",
    "WrongCluster",
    "__version__",
    "bucket",
    "bucketed",
    "cluster",
    "data",
    "device",
    "devices",
    "function",
    "get",
    "init",
    "load",
    "log",
    "manual_seed",
    "metrics",
    "pipeline",
    "pipelines",
    "prepare",
    "program",
    "progress",
    "put",
    "recompiles",
    "save",
    "seed",
    "shard",
    "shutdown",
    "step",
    "trace",
    "transfer",
    "wait",
    "wait_stats",
    "watch",
]

_ROOMS = {
    "CaptureWarning": "ptpathways.frontend",
    "CapturedStep": "ptpathways.frontend",
    "Cluster": "ptpathways.frontend",
    "CompiledFunction": "ptpathways.frontend",
    "Future": "ptpathways.frontend",
    "IrregularFunctionWarning": "ptpathways.frontend",
    "MetricsWarning": "ptpathways.metrics",
    "Program": "ptpathways.frontend",
    "Pipeline": "ptpathways.pipelines",
    "Progress": "ptpathways.metrics",
    "Recompile": "ptpathways.frontend",
    "RecompileWarning": "ptpathways.frontend",
    "Loaded": "ptpathways.checkpoint",
    "Save": "ptpathways.checkpoint",
    "VirtualSlice": "ptpathways.frontend",
    "WaitStats": "ptpathways.frontend",
    "WaitWarning": "ptpathways.frontend",
    "bucket": "ptpathways.train",
    "bucketed": "ptpathways.train",
    "cluster": "ptpathways.frontend",
    "device": "ptpathways.frontend",
    "devices": "ptpathways.frontend",
    "function": "ptpathways.frontend",
    "get": "ptpathways.frontend",
    "init": "ptpathways.frontend",
    "log": "ptpathways.metrics",
    "load": "ptpathways.checkpoint",
    "manual_seed": "ptpathways.frontend",
    "pipeline": "ptpathways.pipelines",
    "prepare": "ptpathways.train",
    "program": "ptpathways.frontend",
    "progress": "ptpathways.metrics",
    "put": "ptpathways.frontend",
    "recompiles": "ptpathways.frontend",
    "save": "ptpathways.checkpoint",
    "seed": "ptpathways.frontend",
    "shard": "ptpathways.frontend",
    "shutdown": "ptpathways.frontend",
    "step": "ptpathways.frontend",
    "trace": "ptpathways.frontend",
    "transfer": "ptpathways.frontend",
    "wait": "ptpathways.frontend",
    "wait_stats": "ptpathways.frontend",
    "watch": "ptpathways.train",
}


_SUBMODULES = frozenset({"data", "metrics", "pipelines"})
"""Rooms that are public by themselves, as ``pw.metrics``."""


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"ptpathways.{name}")
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
