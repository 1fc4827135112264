"""What every room shares: errors, options, names and the clock. Standard library only."""

from __future__ import annotations

from ptpathways.core._clock import Clock, ManualClock, SystemClock
from ptpathways.core._errors import (
    AlreadyInitialized,
    CapturedTensor,
    CompileFailed,
    ConnectionFailed,
    DeadlineExceeded,
    HostLost,
    ImpureFunction,
    InputPipelineFailed,
    InvalidOption,
    InvalidProgram,
    InvalidSharding,
    NotInitialized,
    NotOneIsland,
    OutOfDeviceMemory,
    PathwaysError,
    PluginNotFound,
    RuntimeAlreadyStarted,
    SliceUnavailable,
    TooManyRecompiles,
    UsedAfterDonation,
    VersionMismatch,
    WrongCluster,
)
from ptpathways.core._ids import Counter, random_name
from ptpathways.core._options import ENVIRONMENT, LOG_LEVELS, POLICIES, Options, Variable, environment_table
from ptpathways.core._simulated import Simulated
from ptpathways.core._token import TOKEN_VARIABLE, check_token, make_token, read_token, write_token
from ptpathways.core._units import format_bytes, parse_bytes
from ptpathways.core._version import __version__

__all__ = [
    "ENVIRONMENT",
    "LOG_LEVELS",
    "POLICIES",
    "TOKEN_VARIABLE",
    "AlreadyInitialized",
    "CapturedTensor",
    "Clock",
    "CompileFailed",
    "ConnectionFailed",
    "Counter",
    "DeadlineExceeded",
    "HostLost",
    "ImpureFunction",
    "InputPipelineFailed",
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
    "Simulated",
    "SliceUnavailable",
    "SystemClock",
    "TooManyRecompiles",
    "UsedAfterDonation",
    "Variable",
    "VersionMismatch",
    "WrongCluster",
    "__version__",
    "check_token",
    "environment_table",
    "format_bytes",
    "make_token",
    "parse_bytes",
    "random_name",
    "read_token",
    "write_token",
]
