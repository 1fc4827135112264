"""From the extension's canonical codes to the error classes of ``ptpathways.core``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ptpathways import core

_BY_CODE: dict[str, type[core.PathwaysError]] = {
    "DEADLINE_EXCEEDED": core.DeadlineExceeded,
    "RESOURCE_EXHAUSTED": core.OutOfDeviceMemory,
    "UNAVAILABLE": core.HostLost,
    "CANCELLED": core.ConnectionFailed,
    "OUT_OF_RANGE": core.UsedAfterDonation,
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


def _class_of(code: str, message: str) -> type[core.PathwaysError]:
    if "input pipeline" in message and code not in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
        return core.InputPipelineFailed  # also where a value is read that was computed from its batch
    return _BY_CODE.get(code) or core.PathwaysError


def translate(error: RuntimeError, while_: str = "") -> core.PathwaysError:
    """The class of ``ptpathways.core`` for a ``NativeError``.

    The code alone does not always say what a caller can do: UNAVAILABLE is a lost host while waiting for a value, and
    a controller out of reach while connecting. ``while_`` is ``"connecting"``, ``"compiling"``,
    ``"slicing"`` or empty.
    """
    if _when_raised is not None:
        _when_raised()
    code = getattr(error, "code", "")
    kind = _CODES_WHILE[while_].get(code) or _class_of(code, str(error))
    if kind is core.DeadlineExceeded and _explain is not None:
        try:
            return kind(f"{error}{_explain()}")
        except RuntimeError:
            pass  # the session has ended
    return kind(str(error))


_DELETED = "!buffer->IsDeleted()"


def translate_of_torch(error: RuntimeError) -> RuntimeError:
    """The class of ``ptpathways.core`` for an error that PyTorch/XLA has made of one of the plugin's; others as they
    are."""
    from ptpathways.native._load import load

    if type(error) is not RuntimeError:
        return error
    if _DELETED in str(error):
        return core.PathwaysError(
            "what was traced reads a tensor whose buffer was given up: a tensor was written, and then a view was taken "
            "of another one with the same memory (of detach(), .data or a state_dict()); make that one anew, read it "
            f"whole first, or keep a clone(). (PyTorch/XLA said: {str(error).splitlines()[0]})"
        )
    found = load().error_in(str(error))
    if found is None:
        return _of_lost_value(error)
    if _when_raised is not None:
        _when_raised()
    code, message = found
    return _class_of(code, message)(message)


_LOST = re.compile(r"Check failed: (data\(\)->)?tensor_data")
"""What PyTorch/XLA says of a tensor of which neither a value nor how to compute it is known."""
NOT_COMPILED = "Error while lowering"
"""What it says where an operation has no form in HLO, of which its shape told nothing."""
_not_compiled = ""
"""Of the operation that could not be compiled last."""


def _of_lost_value(error: RuntimeError) -> RuntimeError:
    """PyTorch/XLA forgets what a step computes before it finds that a part of it cannot be compiled."""
    global _not_compiled
    text = str(error)
    if NOT_COMPILED in text:
        _not_compiled = " ".join(text.splitlines()[0].split())
    elif _LOST.search(text):
        return core.PathwaysError(
            "a tensor has neither a value nor a computation: it was traced together with an operation that could not "
            f"be compiled ({_not_compiled or 'PyTorch/XLA did not say which'}), and PyTorch/XLA lost all that was "
            "traced with it, parameters and optimizer state that it wrote, too. Let go of these tensors, make them "
            "anew, and load their values from a checkpoint"
        )
    return error


_when_raised: Callable[[], None] | None = None


def when_raised(call: Callable[[], None] | None) -> None:
    """``call`` is called whenever an error of the native part is raised; None: nothing is."""
    global _when_raised
    _when_raised = call


_explain: Callable[[], str] | None = None


def explain_deadlines(explain: Callable[[], str] | None) -> None:
    """What ``explain`` gives is put behind the message of every ``DeadlineExceeded``; None: nothing."""
    global _explain
    _explain = explain


@contextmanager
def translated(while_: str = "") -> Iterator[None]:
    """Raises the translation of every ``NativeError`` of its block; see ``translate``."""
    try:
        yield
    except RuntimeError as error:
        if getattr(error, "code", None) is None or isinstance(error, core.PathwaysError):
            raise
        raise translate(error, while_) from None
