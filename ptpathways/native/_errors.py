"""From the extension's canonical codes to the error classes of ``ptpathways.core``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ptpathways import core

_BY_CODE: dict[str, type[core.PathwaysError]] = {
    "DEADLINE_EXCEEDED": core.DeadlineExceeded,
    "RESOURCE_EXHAUSTED": core.OutOfDeviceMemory,
    "UNAVAILABLE": core.HostLost,
    "CANCELLED": core.ConnectionFailed,
}

_CONNECTING: dict[str, type[core.PathwaysError]] = {
    "UNAVAILABLE": core.ConnectionFailed,
    "NOT_FOUND": core.ConnectionFailed,
    "PERMISSION_DENIED": core.ConnectionFailed,
    "ALREADY_EXISTS": core.ConnectionFailed,
    "INVALID_ARGUMENT": core.InvalidOption,
    "FAILED_PRECONDITION": core.VersionMismatch,
}

_COMPILING: dict[str, type[core.PathwaysError]] = {
    "INVALID_ARGUMENT": core.CompileFailed,
    "UNIMPLEMENTED": core.CompileFailed,
    "INTERNAL": core.CompileFailed,
}

_SLICING: dict[str, type[core.PathwaysError]] = {
    "INVALID_ARGUMENT": core.SliceUnavailable,
    "NOT_FOUND": core.SliceUnavailable,
    "FAILED_PRECONDITION": core.SliceUnavailable,
    "RESOURCE_EXHAUSTED": core.SliceUnavailable,
}

_CODES_WHILE = {"": {}, "connecting": _CONNECTING, "compiling": _COMPILING, "slicing": _SLICING}


def translate(error: RuntimeError, while_: str = "") -> core.PathwaysError:
    """The class of ``ptpathways.core`` for a ``NativeError``.

    The code alone does not always say what a caller can do: UNAVAILABLE is a lost host while waiting for a value, and
    a controller out of reach while connecting. ``while_`` is ``"connecting"``, ``"compiling"``,
    ``"slicing"`` or empty.
    """
    code = getattr(error, "code", "")
    kind = _CODES_WHILE[while_].get(code) or _BY_CODE.get(code) or core.PathwaysError
    return kind(str(error))


@contextmanager
def translated(while_: str = "") -> Iterator[None]:
    """Raises the translation of every ``NativeError`` of its block; see ``translate``."""
    try:
        yield
    except RuntimeError as error:
        if getattr(error, "code", None) is None or isinstance(error, core.PathwaysError):
            raise
        raise translate(error, while_) from None
