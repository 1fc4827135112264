"""What every room shares: errors, options, names and the clock. Standard library only."""

from __future__ import annotations

from ptpathways.core._clock import Clock, ManualClock, SystemClock
from ptpathways.core._errors import (
    AlreadyInitialized,
    CompileFailed,
    ConnectionFailed,
    DeadlineExceeded,
    HostLost,
    InvalidOption,
    InvalidProgram,
    InvalidSharding,
    NotInitialized,
    NotOneIsland,
    OutOfDeviceMemory,
    PathwaysError,
    PluginNotFound,
    RuntimeAlreadyStarted,
    VersionMismatch,
)
from ptpathways.core._ids import Counter, random_name
from ptpathways.core._options import ENVIRONMENT, LOG_LEVELS, Options, Variable, environment_table, parse_bytes
from ptpathways.core._version import __version__

__all__ = [
    "ENVIRONMENT",
    "LOG_LEVELS",
    "AlreadyInitialized",
    "Clock",
    "CompileFailed",
    "ConnectionFailed",
    "Counter",
    "DeadlineExceeded",
    "HostLost",
    "InvalidOption",
    "InvalidProgram",
    "InvalidSharding",
    "ManualClock",
    "NotInitialized",
    "NotOneIsland",
    "Options",
    "OutOfDeviceMemory",
    "PathwaysError",
    "PluginNotFound",
    "RuntimeAlreadyStarted",
    "SystemClock",
    "Variable",
    "VersionMismatch",
    "__version__",
    "environment_table",
    "parse_bytes",
    "random_name",
]
